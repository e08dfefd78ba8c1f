// java.net.http.HttpClient: HTTP/2 by ALPN and HTTP/1.1, an upload, and a stream of events.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.io.ByteArrayInputStream;
import java.time.Duration;
import java.util.List;

public class HttpClientProgram {
    static HttpRequest.Builder to(String path) {
        return HttpRequest.newBuilder(URI.create(System.getenv("BASE_API") + path))
            .timeout(Duration.ofSeconds(60))
            .header("Authorization", "Bearer " + System.getenv("API_TOKEN"));
    }

    static void require(boolean truth, String why) {
        if (!truth) throw new IllegalStateException(why);
    }

    static void check(HttpClient.Version version) throws Exception {
        HttpClient client = HttpClient.newBuilder().version(version).connectTimeout(Duration.ofSeconds(20)).build();
        HttpResponse<String> who = client.send(to("/v1/whoami").build(), BodyHandlers.ofString());
        require(who.statusCode() == 200, "status " + who.statusCode());
        require(who.version() == version, "not " + version + " but " + who.version());
        require(who.body().contains("alice"), "not alice");
        byte[] data = new byte[2_000_000];
        HttpRequest upload = to("/v1/upload").POST(BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(data))).build();
        require(client.send(upload, BodyHandlers.ofString()).body().contains("2000000"), "the upload is short");
        long[] times = client.send(to("/v1/events").build(), BodyHandlers.ofLines()).body()
            .filter(line -> !line.isEmpty()).mapToLong(line -> System.nanoTime()).toArray();
        require(times.length == 10, times.length + " events");
        require(times[9] - times[0] > 150_000_000L, "the whole stream came at once: it was held back");
    }

    public static void main(String[] arguments) {
        String name = "java-" + (arguments.length > 0 ? arguments[0] : "h2");
        try {
            check(name.equals("java-h1") ? HttpClient.Version.HTTP_1_1 : HttpClient.Version.HTTP_2);
            System.out.println("ok " + name);
            System.exit(0);
        } catch (Exception error) {
            System.out.println("FAIL " + name + " " + error);
            System.exit(1);
        }
    }
}

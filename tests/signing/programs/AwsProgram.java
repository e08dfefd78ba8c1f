import com.simba.athena.amazonaws.ClientConfiguration;
import com.simba.athena.amazonaws.PredefinedClientConfigurations;
import com.simba.athena.amazonaws.auth.AWSStaticCredentialsProvider;
import com.simba.athena.amazonaws.auth.BasicSessionCredentials;
import com.simba.athena.amazonaws.client.builder.AwsClientBuilder.EndpointConfiguration;
import com.simba.athena.amazonaws.services.securitytoken.AWSSecurityTokenService;
import com.simba.athena.amazonaws.services.securitytoken.AWSSecurityTokenServiceClientBuilder;
import com.simba.athena.amazonaws.services.securitytoken.model.AWSSecurityTokenServiceException;
import com.simba.athena.amazonaws.services.securitytoken.model.AssumeRoleRequest;
import com.simba.athena.amazonaws.services.securitytoken.model.Credentials;
import com.simba.athena.amazonaws.services.securitytoken.model.GetCallerIdentityRequest;
import java.util.concurrent.Callable;

/** The AWS SDK for Java, version 1, as it stands in Athena's JDBC driver: of the services that have an origin here, that has STS. */
public final class AwsProgram {
    private static boolean failed;

    private static AWSSecurityTokenService sts(String region, String id, String secret, String token) {
        // It gives up at once, as the others do, and goes by the proxy of the system's properties.
        ClientConfiguration plain = PredefinedClientConfigurations.defaultConfig().withMaxErrorRetry(0);
        return AWSSecurityTokenServiceClientBuilder.standard()
            .withClientConfiguration(plain)
            .withCredentials(new AWSStaticCredentialsProvider(new BasicSessionCredentials(id, secret, token)))
            .withEndpointConfiguration(new EndpointConfiguration(System.getenv("AWS_ENDPOINT_URL_STS"), region))
            .build();
    }

    private static AWSSecurityTokenService own(String region) {
        return sts(region, System.getenv("AWS_ACCESS_KEY_ID"), System.getenv("AWS_SECRET_ACCESS_KEY"), System.getenv("AWS_SESSION_TOKEN"));
    }

    private static boolean known(AWSSecurityTokenService client) {
        return client.getCallerIdentity(new GetCallerIdentityRequest()).getAccount().equals("123456789012");
    }

    /** What the gateway refuses by itself, as this SDK tells it; straight at the origin it is refused, too. */
    private static boolean refused() {
        try {
            known(own("eu-west-1"));
            return false;
        } catch (AWSSecurityTokenServiceException error) {
            return System.getenv("SIGNING_DIRECT") != null || (error.getErrorCode().equals("AccessDenied") && error.getMessage().contains("gateway why "));
        }
    }

    private static void attempt(String name, Callable<Boolean> operation) {
        String chosen = System.getenv("SIGNING_OPERATIONS");
        if (chosen != null && !chosen.isEmpty() && !("," + chosen + ",").contains("," + name + ",")) {
            return;
        }
        String why = "another answer";
        try {
            if (operation.call()) {
                System.out.println("ok " + name);
                return;
            }
        } catch (Exception error) {
            why = error.toString();
        }
        failed = true;
        System.out.println("FAIL " + name + ": " + why.replaceAll("\\s+", " "));
    }

    public static void main(String[] arguments) {
        String region = System.getenv("AWS_REGION");
        attempt("sts", () -> known(own(region)));
        attempt("assumed role", () -> {
            Credentials role = own(region).assumeRole(new AssumeRoleRequest().withRoleArn("arn:aws:iam::123456789012:role/judge").withRoleSessionName("alice ü")).getCredentials();
            System.out.println("   holds " + role.getAccessKeyId() + " " + role.getSecretAccessKey() + " " + role.getSessionToken());
            return known(sts(region, role.getAccessKeyId(), role.getSecretAccessKey(), role.getSessionToken()));
        });
        attempt("refusal", AwsProgram::refused);
        System.exit(failed ? 1 : 0);
    }
}

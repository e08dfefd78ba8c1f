// net/http of Go: HTTP/2 by ALPN, an upload of unknown length, and a stream of events.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

func send(method, path string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequest(method, os.Getenv("BASE_API")+path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("API_TOKEN"))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != 200 {
		return nil, fmt.Errorf("status %d", answer.StatusCode)
	}
	if answer.ProtoMajor != 2 {
		return nil, fmt.Errorf("not HTTP/2 but %s", answer.Proto)
	}
	return answer, nil
}

func check() error {
	http.DefaultClient.Timeout = 60 * time.Second
	var who struct{ User string }
	answer, err := send("GET", "/v1/whoami", nil)
	if err != nil {
		return err
	}
	if err := json.NewDecoder(answer.Body).Decode(&who); err != nil || who.User != "alice" {
		return fmt.Errorf("not alice: %v", err)
	}
	var uploaded struct{ Size int }
	// A reader whose length Go cannot know.
	answer, err = send("POST", "/v1/upload", io.LimitReader(strings.NewReader(strings.Repeat("x", 3_000_000)), 3_000_000))
	if err != nil {
		return err
	}
	if err := json.NewDecoder(answer.Body).Decode(&uploaded); err != nil || uploaded.Size != 3_000_000 {
		return fmt.Errorf("uploaded %d: %v", uploaded.Size, err)
	}
	answer, err = send("GET", "/v1/events", nil)
	if err != nil {
		return err
	}
	var first, last time.Time
	events := 0
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if lines.Text() != "" {
			last = time.Now()
			if events++; events == 1 {
				first = last
			}
		}
	}
	if took := last.Sub(first); events != 10 || took < 150*time.Millisecond {
		return fmt.Errorf("%d events within %v: held back", events, took)
	}
	return nil
}

func main() {
	if err := check(); err != nil {
		fmt.Println("FAIL go", err)
		os.Exit(1)
	}
	fmt.Println("ok go")
}

// MinIO's library for Go, as Debian has it: what its client `mc` is made of, with a signer of its own.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

var (
	ctx    = context.Background()
	bucket = os.Getenv("SIGNING_BUCKET")
	failed = false
)

func key(name string) string { return os.Getenv("SIGNING_CLIENT") + "/" + name }

func try(name string, operation func() error) {
	chosen := os.Getenv("SIGNING_OPERATIONS")
	if chosen != "" && !strings.Contains(","+chosen+",", ","+name+",") {
		return
	}
	if err := operation(); err != nil {
		failed = true
		fmt.Printf("FAIL %s: %.500s\n", name, strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	fmt.Printf("ok %s\n", name)
}

func same(found, wanted []byte) error {
	if !bytes.Equal(found, wanted) {
		return fmt.Errorf("%.100q instead of %.100q", found, wanted)
	}
	return nil
}

func put(client *minio.Client, name string, content []byte, options minio.PutObjectOptions) error {
	_, err := client.PutObject(ctx, bucket, key(name), bytes.NewReader(content), int64(len(content)), options)
	return err
}

func back(client *minio.Client, name string, options minio.GetObjectOptions, wanted []byte) error {
	object, err := client.GetObject(ctx, bucket, key(name), options)
	if err != nil {
		return err
	}
	defer object.Close()
	found, err := io.ReadAll(object)
	if err != nil {
		return err
	}
	return same(found, wanted)
}

// Not every name can be said: this library itself refuses those with dot segments or a first slash.
func names() (found []string) {
	var all []string
	_ = json.Unmarshal([]byte(os.Getenv("SIGNING_KEYS")), &all)
	for _, name := range all {
		if !strings.Contains(name, "./") && !strings.HasPrefix(name, "/") {
			found = append(found, name)
		}
	}
	return found
}

func fetched(request *http.Request) ([]byte, error) {
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	found, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != 200 {
		err = fmt.Errorf("%s %s", response.Status, found)
	}
	return found, err
}

func objects(client *minio.Client) {
	none, all := minio.PutObjectOptions{}, minio.GetObjectOptions{}
	try("put", func() error {
		return put(client, "put", []byte("hello"), minio.PutObjectOptions{UserMetadata: map[string]string{"who": "judge  ü"}, ContentType: "text/plain"})
	})
	try("get", func() error { return back(client, "put", all, []byte("hello")) })
	try("range", func() error {
		part := minio.GetObjectOptions{}
		if err := part.SetRange(1, 3); err != nil {
			return err
		}
		return back(client, "put", part, []byte("ell"))
	})
	try("head", func() error {
		found, err := client.StatObject(ctx, bucket, key("put"), all)
		if err == nil && found.Size != 5 {
			err = fmt.Errorf("%d bytes", found.Size)
		}
		return err
	})
	try("list", func() error {
		count := 0
		for item := range client.ListObjects(ctx, bucket, minio.ListObjectsOptions{Prefix: key("put")}) {
			if item.Err != nil {
				return item.Err
			}
			count++
		}
		if count != 1 {
			return fmt.Errorf("%d objects", count)
		}
		return nil
	})
	try("copy", func() error {
		from, to := minio.CopySrcOptions{Bucket: bucket, Object: key("put")}, minio.CopyDestOptions{Bucket: bucket, Object: key("to")}
		if _, err := client.CopyObject(ctx, to, from); err != nil {
			return err
		}
		return back(client, "to", all, []byte("hello"))
	})
	try("delete", func() error {
		if err := client.RemoveObject(ctx, bucket, key("to"), minio.RemoveObjectOptions{}); err != nil {
			return err
		}
		if err := put(client, "gone too", nil, none); err != nil {
			return err
		}
		many := make(chan minio.ObjectInfo, 1)
		many <- minio.ObjectInfo{Key: key("gone too")}
		close(many)
		for failure := range client.RemoveObjects(ctx, bucket, many, minio.RemoveObjectsOptions{}) {
			return failure.Err
		}
		return nil
	})
	try("multipart", func() error {
		whole := bytes.Repeat([]byte("0123456789"), 1_700_000)
		if err := put(client, "large", whole, minio.PutObjectOptions{PartSize: 6 << 20, SendContentMd5: true}); err != nil {
			return err
		}
		return back(client, "large", all, whole)
	})
	try("keys", func() error {
		for _, name := range names() {
			if err := put(client, name, []byte(name), none); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := back(client, name, all, []byte(name)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
}

func urls(client *minio.Client) {
	try("presigned get", func() error {
		url, err := client.PresignedGetObject(ctx, bucket, key("put"), 5*time.Minute, nil)
		if err != nil {
			return err
		}
		request, _ := http.NewRequest("GET", url.String(), nil)
		found, err := fetched(request)
		if err != nil {
			return err
		}
		return same(found, []byte("hello"))
	})
	try("presigned put", func() error {
		url, err := client.PresignedPutObject(ctx, bucket, key("by url"), 5*time.Minute)
		if err != nil {
			return err
		}
		request, _ := http.NewRequest("PUT", url.String(), strings.NewReader("put by url"))
		if _, err := fetched(request); err != nil {
			return err
		}
		return back(client, "by url", minio.GetObjectOptions{}, []byte("put by url"))
	})
}

func main() {
	keys := credentials.NewStaticV4(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN"))
	host := strings.TrimPrefix(os.Getenv("AWS_ENDPOINT_URL_S3"), "https://")
	client, err := minio.New(host, &minio.Options{Creds: keys, Secure: true, Region: os.Getenv("AWS_REGION"), BucketLookup: minio.BucketLookupPath})
	if err != nil {
		fmt.Println("FAIL put:", err)
		os.Exit(1)
	}
	objects(client)
	urls(client)
	if failed {
		os.Exit(1)
	}
}

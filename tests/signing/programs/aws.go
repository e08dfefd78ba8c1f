// AWS SDK for Go v2, as Debian has it: S3, DynamoDB, STS, SQS, Secrets Manager.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
)

var (
	ctx    = context.Background()
	bucket = aws.String(os.Getenv("SIGNING_BUCKET"))
	failed = false
)

func key(name string) *string { return aws.String(os.Getenv("SIGNING_CLIENT") + "/" + name) }

func content(size int) []byte {
	found := make([]byte, size)
	for at := range found {
		found[at] = byte(at)
	}
	return found
}

func same(found, wanted []byte) error {
	if !bytes.Equal(found, wanted) {
		return fmt.Errorf("%.100q instead of %.100q", found, wanted)
	}
	return nil
}

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

func put(client *s3.Client, name string, body io.Reader) error {
	_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: key(name), Body: body})
	return err
}

func get(client *s3.Client, name string, part *string) ([]byte, error) {
	found, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key(name), Range: part})
	if err != nil {
		return nil, err
	}
	defer found.Body.Close()
	return io.ReadAll(found.Body)
}

func back(client *s3.Client, name string, part *string, wanted []byte) error {
	found, err := get(client, name, part)
	if err != nil {
		return err
	}
	return same(found, wanted)
}

// This version of the SDK reads no endpoint from the environment.
func endpoints(service, region string, _ ...interface{}) (aws.Endpoint, error) {
	names := map[string]string{"S3": "S3", "DynamoDB": "DYNAMODB", "STS": "STS", "SQS": "SQS", "Secrets Manager": "SECRETS_MANAGER"}
	url := os.Getenv("AWS_ENDPOINT_URL_" + names[service])
	return aws.Endpoint{URL: url, SigningRegion: region, HostnameImmutable: service == "S3"}, nil
}

func objects(client *s3.Client) {
	try("put", func() error { return put(client, "put", strings.NewReader("hello")) })
	try("get", func() error { return back(client, "put", nil, []byte("hello")) })
	try("range", func() error { return back(client, "put", aws.String("bytes=1-3"), []byte("ell")) })
	try("head", func() error {
		found, err := client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: key("put")})
		if err == nil && found.ContentLength != 5 {
			return fmt.Errorf("%d bytes", found.ContentLength)
		}
		return err
	})
	try("list", func() error {
		found, err := client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: bucket, Prefix: key("put"), Delimiter: aws.String("/")})
		if err == nil && len(found.Contents) != 1 {
			return fmt.Errorf("%d objects", len(found.Contents))
		}
		return err
	})
	try("copy", func() error {
		if err := put(client, "from", strings.NewReader("copied")); err != nil {
			return err
		}
		from := *bucket + "/" + *key("from")
		if _, err := client.CopyObject(ctx, &s3.CopyObjectInput{Bucket: bucket, Key: key("to"), CopySource: &from}); err != nil {
			return err
		}
		return back(client, "to", nil, []byte("copied"))
	})
	try("delete", func() error {
		if _, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: key("to")}); err != nil {
			return err
		}
		both := &types.Delete{Objects: []types.ObjectIdentifier{{Key: key("from")}}}
		_, err := client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: bucket, Delete: both})
		return err
	})
	try("multipart", func() error {
		whole := content(20_000_000)
		if _, err := manager.NewUploader(client).Upload(ctx, &s3.PutObjectInput{Bucket: bucket, Key: key("large"), Body: bytes.NewReader(whole)}); err != nil {
			return err
		}
		found, err := get(client, "large", nil)
		if err != nil {
			return err
		}
		a, b := sha256.Sum256(found), sha256.Sum256(whole)
		return same(a[:], b[:])
	})
	try("keys", func() error {
		var names []string
		if err := json.Unmarshal([]byte(os.Getenv("SIGNING_KEYS")), &names); err != nil {
			return err
		}
		for _, name := range names {
			if err := put(client, name, strings.NewReader(name)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := back(client, name, nil, []byte(name)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	try("checksums", func() error {
		for _, algorithm := range []types.ChecksumAlgorithm{"CRC32", "CRC32C", "SHA1", "SHA256"} {
			input := &s3.PutObjectInput{Bucket: bucket, Key: key("sum"), Body: bytes.NewReader(content(300_000)), ChecksumAlgorithm: algorithm}
			if _, err := client.PutObject(ctx, input); err != nil {
				return err
			}
			if err := back(client, "sum", nil, content(300_000)); err != nil {
				return err
			}
		}
		return nil
	})
	signer := s3.NewPresignClient(client)
	try("presigned get", func() error {
		url, err := signer.PresignGetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key("put")})
		if err != nil {
			return err
		}
		return fetch(url.Method, url.URL, nil, []byte("hello"))
	})
	try("presigned put", func() error {
		url, err := signer.PresignPutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: key("by url")})
		if err != nil {
			return err
		}
		if err := fetch(url.Method, url.URL, strings.NewReader("put by url"), nil); err != nil {
			return err
		}
		return back(client, "by url", nil, []byte("put by url"))
	})
}

func fetch(method, url string, body io.Reader, wanted []byte) error {
	request, err := http.NewRequest(method, url, body)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	found, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		return fmt.Errorf("%s %s %v", response.Status, found, err)
	}
	return same(found, wanted)
}

func services(settings aws.Config) {
	try("dynamodb", func() error {
		client, id := dynamodb.NewFromConfig(settings), &dynamotypes.AttributeValueMemberS{Value: "go ü"}
		item := map[string]dynamotypes.AttributeValue{"id": id}
		if _, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("judges"), Item: item}); err != nil {
			return err
		}
		found, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("judges"), Key: item})
		if err == nil && found.Item["id"].(*dynamotypes.AttributeValueMemberS).Value != id.Value {
			return fmt.Errorf("%v", found.Item)
		}
		return err
	})
	try("sts", func() error {
		found, err := sts.NewFromConfig(settings).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
		if err == nil && *found.Account != "123456789012" {
			return errors.New(*found.Account)
		}
		return err
	})
	try("sqs", func() error {
		client, queue := sqs.NewFromConfig(settings), aws.String(os.Getenv("AWS_ENDPOINT_URL_SQS")+"/123456789012/judges")
		if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String("from go <&>")}); err != nil {
			return err
		}
		found, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue})
		if err == nil && *found.Messages[0].Body != "from go <&>" {
			return errors.New(*found.Messages[0].Body)
		}
		return err
	})
	try("service error", func() error {
		_, err := dynamodb.NewFromConfig(settings).DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: aws.String("judges")})
		return expect(err, "ResourceNotFoundException", "")
	})
	try("refusal", func() error {
		_, err := secretsmanager.NewFromConfig(settings).GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: aws.String("judge")})
		if os.Getenv("SIGNING_DIRECT") != "" {
			return err
		}
		return expect(err, "AccessDeniedException", "gateway why ")
	})
}

func expect(err error, code, text string) error {
	var known smithy.APIError
	if errors.As(err, &known) && known.ErrorCode() == code && strings.Contains(known.ErrorMessage(), text) {
		return nil
	}
	return fmt.Errorf("no such error: %v", err)
}

func main() {
	resolver := aws.EndpointResolverWithOptionsFunc(endpoints)
	settings, err := config.LoadDefaultConfig(ctx, config.WithEndpointResolverWithOptions(resolver), config.WithRetryMaxAttempts(1))
	if err != nil {
		fmt.Println("FAIL put:", err)
		os.Exit(1)
	}
	objects(s3.NewFromConfig(settings, func(options *s3.Options) { options.UsePathStyle = true }))
	services(settings)
	if failed {
		os.Exit(1)
	}
}

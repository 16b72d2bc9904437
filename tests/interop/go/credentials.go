package main

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"os"
	"slices"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// credentials sign what the clients of the scenarios ask; when they are empty nothing is signed.
var credentials = primitive.Credentials{
	AccessKey: os.Getenv("INTEROP_ACCESS_KEY"),
	SecretKey: os.Getenv("INTEROP_SECRET_KEY"),
}

// sign adds what the client adds to its own requests: the values in the order of their names, then the body.
func sign(fields map[string]string, body []byte) {
	if credentials.IsEmpty() {
		return
	}
	fields["AccessKey"] = credentials.AccessKey
	names := []string{}
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	hash := hmac.New(sha1.New, []byte(credentials.SecretKey))
	for _, name := range names {
		hash.Write([]byte(fields[name]))
	}
	hash.Write(body)
	fields["Signature"] = base64.StdEncoding.EncodeToString(hash.Sum(nil))
}

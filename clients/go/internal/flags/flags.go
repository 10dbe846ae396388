// Package flags is the command line that all example programs share.
package flags

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"time"

	penstock "penstock.io/client"
)

// Common are the flags of every program.
type Common struct {
	Topic     string
	endpoints string
	app       string
	keyID     string
	buffered  bool
	tlsCA     string
	deadline  int
}

// Register adds the common flags to the program's own.
func Register() *Common {
	c := &Common{}
	flag.StringVar(&c.endpoints, "endpoints", "", "HOST:PORT[,HOST:PORT]")
	flag.StringVar(&c.app, "app", "", "application")
	flag.StringVar(&c.keyID, "key-id", "", "Key id of the application")
	flag.StringVar(&c.Topic, "topic", "", "topic")
	flag.BoolVar(&c.buffered, "buffered", false, "buffered transport instead of framed")
	flag.StringVar(&c.tlsCA, "tls-ca", "", "speak TLS and trust the certificate authorities in this PEM file")
	flag.IntVar(&c.deadline, "deadline-ms", 30_000, "for one call with all its retries")
	return c
}

// Config reads the secret from the environment, where ps does not show it.
func (c *Common) Config() penstock.Config {
	secret := os.Getenv("PENSTOCK_SECRET")
	if secret == "" {
		Fail("set PENSTOCK_SECRET to the application's secret")
	}
	return penstock.Config{
		Endpoints: penstock.ParseEndpoints(c.endpoints), App: c.app, KeyID: c.keyID, Secret: secret,
		Buffered: c.buffered, TLS: TLS(c.tlsCA), Deadline: time.Duration(c.deadline) * time.Millisecond,
	}
}

// TLS trusts the certificate authorities in a PEM file; nil for the empty name.
func TLS(file string) *tls.Config {
	if file == "" {
		return nil
	}
	pem, err := os.ReadFile(file)
	Check(err)
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		Fail(file + ": no certificate in it")
	}
	return &tls.Config{RootCAs: authorities}
}

// Fail ends the program.
func Fail(reason any) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(1)
}

// Check ends the program on an error.
func Check(err error) {
	if err != nil {
		Fail(err)
	}
}

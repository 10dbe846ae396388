package penstock

import (
	"context"
	"time"

	"github.com/apache/thrift/lib/go/thrift"
)

const bufferSize = 64 << 10

// conn is one socket with one call at a time. After any failure it must be closed: a late answer would go to the next call.
type conn struct {
	transport thrift.TTransport
	config    *thrift.TConfiguration
	client    thrift.TClient
	trusted   bool
	usedAt    time.Time
}

// dial connects, with the TLS handshake, by the deadline.
func dial(endpoint string, c Config, deadline time.Time) (*conn, error) {
	timeout := max(time.Millisecond, min(c.ConnectTimeout, time.Until(deadline))) // 0 would be none
	config := &thrift.TConfiguration{ConnectTimeout: timeout, SocketTimeout: c.CallTimeout, TLSConfig: c.TLS}
	var socket thrift.TTransport
	if c.TLS != nil {
		socket = thrift.NewTSSLSocketConf(endpoint, config)
	} else {
		socket = thrift.NewTSocketConf(endpoint, config)
	}
	// TFramedTransport reads the socket through a buffer of its own.
	var transport thrift.TTransport = thrift.NewTFramedTransportConf(socket, config)
	if c.Buffered {
		transport = thrift.NewTBufferedTransport(socket, bufferSize)
	}
	if err := transport.Open(); err != nil {
		return nil, err
	}
	protocol := thrift.NewTBinaryProtocolConf(transport, config)
	return &conn{
		transport: transport, config: config, client: thrift.NewTStandardClient(protocol, protocol), usedAt: time.Now(),
	}, nil
}

// call runs fn on this connection. The timeout is for each read and write; a cancelled context closes the connection.
func (c *conn) call(ctx context.Context, timeout time.Duration, fn func(thrift.TClient) error) error {
	c.config.SocketTimeout = max(time.Millisecond, timeout)
	finished, watching := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-ctx.Done():
			c.transport.Close()
		case <-finished:
		}
	}()
	err := fn(c.client)
	close(finished)
	<-watching
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		c.trusted = true
		c.usedAt = time.Now()
	}
	return err
}

func (c *conn) close() { c.transport.Close() }

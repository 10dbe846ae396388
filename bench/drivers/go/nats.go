package main

import (
	"context"
	"fmt"
	"math/rand"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	inFlightMax  = 4000             // the library's default
	stallMax     = 10 * time.Second // how long a full pipeline may take to move; the default of 200 ms fails on a busy machine
	readyTimeout = 30 * time.Second
	askTimeout   = time.Second
	retryAfter   = 200 * time.Millisecond
)

type future = jetstream.PubAckFuture

// One file-backed stream per topic, one subject per queue.
type target struct {
	options     options
	connections []*nats.Conn
	streams     []jetstream.JetStream
	asked       int // which of them is asked who leads
}

func connect(options options) (*target, error) {
	made := &target{options: options}
	for range options.clients {
		connection, err := nats.Connect(options.servers)
		if err != nil {
			return nil, err
		}
		stream, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(inFlightMax))
		if err != nil {
			return nil, err
		}
		made.connections, made.streams = append(made.connections, connection), append(made.streams, stream)
	}
	return made, made.createStreams()
}

func (t *target) createStreams() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for i := range t.options.topics {
		settings := jetstream.StreamConfig{
			Name: t.options.topic(i), Subjects: []string{t.options.topic(i) + ".*"}, Storage: jetstream.FileStorage,
			Replicas: t.options.copies,
		}
		_, err := t.streams[0].CreateOrUpdateStream(ctx, settings)
		for err != nil && ctx.Err() == nil { // servers that have just started have not elected their leader yet
			time.Sleep(retryAfter)
			_, err = t.streams[0].CreateOrUpdateStream(ctx, settings)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The server that leads the first topic's stream, and how many servers are up to date in it. When a connection does not answer, the next
// one is asked, then and later: its server may be stopped.
func (t *target) leadership() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	stream, err := t.streams[t.asked].Stream(ctx, t.options.topic(0))
	if err != nil {
		t.asked = (t.asked + 1) % len(t.streams)
		return "", err
	}
	cluster := stream.CachedInfo().Cluster
	if cluster == nil || cluster.Leader == "" {
		return "", fmt.Errorf("no server leads %s", t.options.topic(0))
	}
	current := 1
	for _, replica := range cluster.Replicas {
		if replica.Current && !replica.Offline {
			current++
		}
	}
	return fmt.Sprintf("%s %d", cluster.Leader, current), nil
}

func (t *target) sender(thread int) *sender {
	random := rand.New(rand.NewSource(int64(thread + 1)))
	body := make([]byte, t.options.size)
	random.Read(body)
	var subjects []string
	for topic := range t.options.topics {
		for queue := range t.options.queues {
			subjects = append(subjects, fmt.Sprintf("%s.%d", t.options.topic(topic), queue))
		}
	}
	return &sender{t.streams[thread%len(t.streams)], subjects, body, random}
}

func (t *target) close() {
	for _, connection := range t.connections {
		connection.Close()
	}
}

// The sender of one thread; never shared between threads.
type sender struct {
	stream   jetstream.JetStream
	subjects []string
	body     []byte
	random   *rand.Rand
}

func (s *sender) subject() string { return s.subjects[s.random.Intn(len(s.subjects))] }

func (s *sender) call() error {
	_, err := s.stream.Publish(context.Background(), s.subject(), s.body)
	return err
}

// Blocks while inFlightMax of the connection's messages have no answer.
func (s *sender) start() (future, error) {
	return s.stream.PublishAsync(s.subject(), s.body, jetstream.WithStallWait(stallMax))
}

func wait(one future) error {
	select {
	case <-one.Ok():
		return nil
	case err := <-one.Err():
		return err
	}
}

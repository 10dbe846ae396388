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
)

type future = jetstream.PubAckFuture

// One file-backed stream per topic, one subject per queue.
type target struct {
	options     options
	connections []*nats.Conn
	streams     []jetstream.JetStream
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
		_, err := t.streams[0].CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: t.options.topic(i), Subjects: []string{t.options.topic(i) + ".*"}, Storage: jetstream.FileStorage,
		})
		if err != nil {
			return err
		}
	}
	return nil
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

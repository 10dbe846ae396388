// Conformance does what the conformance suite asks for: one JSON object per line on stdin and on stdout;
// clients/conformance/.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	penstock "penstock.io/client"
	"penstock.io/client/internal/flags"
)

type step struct {
	Do, Producer, Consumer, App, Secret, Topic, Group string
	KeyID                                             string `json:"key_id"`
	TLSCA                                             string `json:"tls_ca"`
	DeadlineMs                                        int    `json:"deadline_ms"`
	Buffered                                          bool
	Messages                                          []struct{ Body, Key, ID string }
	Max, Index                                        int
	WaitMs                                            int `json:"wait_ms"`
	Verdict, Reason                                   string
	DelayMs                                           int `json:"delay_ms"`
}

type fields map[string]any

type driver struct {
	producer *penstock.Producer
	consumer *penstock.Consumer
	topic    string
	pulled   []*penstock.Delivery
}

func main() {
	var d driver
	for input := json.NewDecoder(os.Stdin); input.More(); {
		var asked step
		flags.Check(input.Decode(&asked))
		answer, err := d.do(asked)
		var refusal *penstock.Error
		if errors.As(err, &refusal) {
			answer, err = fields{"code": int(refusal.Code)}, nil
		}
		flags.Check(err)
		line, err := json.Marshal(answer)
		flags.Check(err)
		fmt.Println(string(line))
	}
}

func (d *driver) do(asked step) (fields, error) {
	switch asked.Do {
	case "open":
		return fields{}, d.open(asked)
	case "send":
		return d.send(asked)
	case "pull":
		return d.pull(asked)
	case "settle":
		d.settle(asked)
		return fields{}, nil
	case "flush":
		err := d.consumer.Flush(context.Background())
		return fields{"refused": d.consumer.AcksRefused()}, err
	default:
		flags.Check(d.producer.Close())
		return fields{}, d.consumer.Close()
	}
}

func (d *driver) open(asked step) (err error) {
	d.topic = asked.Topic
	config := penstock.Config{
		Endpoints: penstock.ParseEndpoints(asked.Producer), App: asked.App, KeyID: asked.KeyID, Secret: asked.Secret,
		Buffered: asked.Buffered, TLS: flags.TLS(asked.TLSCA), Deadline: time.Duration(asked.DeadlineMs) * time.Millisecond,
	}
	if d.producer, err = penstock.NewProducer(config); err != nil {
		return err
	}
	config.Endpoints = penstock.ParseEndpoints(asked.Consumer)
	d.consumer, err = penstock.NewConsumer(
		penstock.ConsumerConfig{Config: config, Group: asked.Group, Topics: []string{asked.Topic}})
	return err
}

func (d *driver) send(asked step) (fields, error) {
	var messages []*penstock.Message
	for _, each := range asked.Messages {
		messages = append(messages, &penstock.Message{Topic: d.topic, Body: []byte(each.Body), Key: each.Key, ID: each.ID})
	}
	results, err := d.producer.SendAll(context.Background(), messages, penstock.How{})
	var shown []fields
	for _, each := range results {
		made := fields{"code": int(each.Code), "id": each.ID, "queue": nil, "offset": nil, "attempts": each.Attempts}
		if each.Queue >= 0 {
			made["queue"] = each.Queue
		}
		if each.Offset >= 0 {
			made["offset"] = each.Offset
		}
		shown = append(shown, made)
	}
	return fields{"results": shown}, err
}

func (d *driver) pull(asked step) (_ fields, err error) {
	d.pulled, err = d.consumer.Pull(context.Background(), asked.Max, time.Duration(asked.WaitMs)*time.Millisecond)
	shown := []fields{}
	for _, each := range d.pulled {
		shown = append(shown, fields{"body": string(each.Message.Body), "key": each.Message.Key, "attempt": each.Attempt})
	}
	return fields{"deliveries": shown}, err
}

func (d *driver) settle(asked step) {
	delivery, delay := d.pulled[asked.Index], time.Duration(asked.DelayMs)*time.Millisecond
	switch asked.Verdict {
	case "done":
		d.consumer.Done(delivery)
	case "retry":
		d.consumer.Retry(delivery, delay, asked.Reason)
	case "reject":
		d.consumer.Reject(delivery, asked.Reason)
	default:
		d.consumer.Extend(delivery, delay)
	}
}

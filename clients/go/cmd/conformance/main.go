// Conformance does what the conformance suite asks for: one JSON object per line on stdin and on stdout;
// clients/conformance/.
package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	penstock "penstock.io/client"
	"penstock.io/client/internal/flags"
)

type step struct {
	Do, Producer, Consumer, App, Secret, Topic, Group string
	KeyID                                             string `json:"key_id"`
	TLSCA                                             string `json:"tls_ca"`
	DeadlineMs                                        int    `json:"deadline_ms"`
	CallTimeoutMs                                     int    `json:"call_timeout_ms"`
	LeaseMs                                           int    `json:"lease_ms"`
	Buffered                                          bool
	Messages                                          []given
	ReplyWaitMs                                       int `json:"reply_wait_ms"`
	Max, Index, Count                                 int
	WaitMs                                            int `json:"wait_ms"`
	Verdict, Reason, Body                             string
	DelayMs                                           int `json:"delay_ms"`
	HandleMs                                          int `json:"handle_ms"`
	Workers, Bytes                                    int
	LingerMs                                          int `json:"linger_ms"`
	BytesMax                                          int `json:"bytes_max"`
	FullWaitMs                                        int `json:"full_wait_ms"`
	CloseMs                                           int `json:"close_ms"`
	Flush                                             bool
}

type given struct {
	Body, Key, ID, Tag string
	Properties         map[string]string
	Times              int
	Cancel             bool
	DelayMs            int `json:"delay_ms"`
}

type fields map[string]any

type driver struct {
	producer *penstock.Producer
	consumer *penstock.Consumer
	topic    string
	pulled   []*penstock.Delivery
	consume  penstock.ConsumerConfig
	told     [4]atomic.Int64 // calls, failed calls, sent messages, handled messages
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
	case "batch":
		return d.batch(asked)
	case "pull":
		return d.pull(asked)
	case "settle":
		d.settle(asked)
		return fields{}, nil
	case "reply":
		_, err := d.producer.Reply(context.Background(), d.pulled[asked.Index], unhex(asked.Body))
		return fields{}, err
	case "run":
		return d.run(asked)
	case "flush":
		err := d.consumer.Flush(context.Background())
		return fields{"refused": d.consumer.AcksRefused(), "told": d.counts()}, err
	default:
		flags.Check(d.producer.Close())
		return fields{}, d.consumer.Close()
	}
}

func (d *driver) open(asked step) (err error) {
	d.topic = asked.Topic
	config := penstock.Config{
		Endpoints: penstock.ParseEndpoints(asked.Producer), App: asked.App, KeyID: asked.KeyID, Secret: asked.Secret,
		Buffered: asked.Buffered, TLS: flags.TLS(asked.TLSCA), Deadline: ms(asked.DeadlineMs), CallTimeout: ms(asked.CallTimeoutMs),
	}
	d.told = [4]atomic.Int64{}
	config.Metrics = penstock.Metrics{
		Call: func(_, _ string, _ time.Duration, err error) {
			d.told[0].Add(1)
			if err != nil {
				d.told[1].Add(1)
			}
		},
		Sent:    func(penstock.Result) { d.told[2].Add(1) },
		Handled: func(*penstock.Delivery, penstock.Verdict, time.Duration) { d.told[3].Add(1) },
	}
	if d.producer, err = penstock.NewProducer(config); err != nil {
		return err
	}
	config.Endpoints = penstock.ParseEndpoints(asked.Consumer)
	d.consume = penstock.ConsumerConfig{
		Config: config, Group: asked.Group, Topics: []string{asked.Topic}, Invisible: ms(asked.LeaseMs),
	}
	d.consumer, err = penstock.NewConsumer(d.consume)
	return err
}

func (d *driver) counts() (counts [4]int64) {
	for i := range d.told {
		counts[i] = d.told[i].Load()
	}
	return counts
}

func (d *driver) messages(asked step) (messages []*penstock.Message) {
	for _, each := range asked.Messages {
		body := unhex(each.Body)
		if each.Times > 1 {
			body = bytes.Repeat(body, each.Times)
		}
		messages = append(messages, &penstock.Message{
			Topic: d.topic, Body: body, Key: each.Key, ID: each.ID, Tag: each.Tag, Properties: each.Properties,
			Delay: ms(each.DelayMs), Cancel: each.Cancel,
		})
	}
	return messages
}

func (d *driver) batch(asked step) (fields, error) {
	ctx := context.Background()
	how := penstock.Batching{
		Linger: ms(asked.LingerMs), Bytes: asked.Bytes, Messages: asked.Count, BytesMax: asked.BytesMax,
		FullWait: ms(asked.FullWaitMs),
	}
	if asked.FullWaitMs == 0 {
		how.FullWait = -1
	}
	batching := penstock.NewBatchingProducer(d.producer, how)
	var taken []*penstock.Pending // nil: the producer was full
	for _, each := range d.messages(asked) {
		pending, err := batching.Send(ctx, each)
		if err != nil && !errors.Is(err, penstock.ErrFull) {
			return nil, err
		}
		taken = append(taken, pending)
	}
	if asked.Flush {
		flags.Check(batching.Flush(ctx))
	}
	if asked.CloseMs >= 0 {
		closing, cancel := context.WithTimeout(ctx, ms(asked.CloseMs))
		defer cancel()
		_ = batching.Close(closing)
	}
	var shown []fields
	for _, each := range taken {
		if each == nil {
			shown = append(shown, fields{"error": "full"})
		} else if result, err := each.Wait(ctx); errors.Is(err, penstock.ErrClosed) {
			shown = append(shown, fields{"error": "closed"})
		} else {
			shown = append(shown, fields{"code": int(result.Code), "id": result.ID, "attempts": result.Attempts})
		}
	}
	return fields{"results": shown}, batching.Close(ctx)
}

func (d *driver) send(asked step) (fields, error) {
	messages := d.messages(asked)
	results, err := d.producer.SendAll(context.Background(), messages, penstock.How{ReplyWait: ms(asked.ReplyWaitMs)})
	var shown []fields
	for _, each := range results {
		made := fields{"code": int(each.Code), "id": each.ID, "queue": nil, "offset": nil, "attempts": each.Attempts, "reply": nil}
		made["reason"] = each.Reason
		if each.Queue >= 0 {
			made["queue"] = each.Queue
		}
		if each.Offset >= 0 {
			made["offset"] = each.Offset
		}
		if each.Reply != nil {
			made["reply"] = hex.EncodeToString(each.Reply.Body)
		}
		shown = append(shown, made)
	}
	return fields{"results": shown}, err
}

func (d *driver) pull(asked step) (_ fields, err error) {
	d.pulled, err = d.consumer.Pull(context.Background(), asked.Max, ms(asked.WaitMs))
	shown := []fields{}
	for _, each := range d.pulled {
		shown = append(shown, fields{
			"body": hex.EncodeToString(each.Message.Body), "key": each.Message.Key, "tag": each.Message.Tag,
			"properties": each.Message.Properties, "id": each.ID, "attempt": each.Attempt, "asked": each.ReplyToken != nil,
		})
	}
	return fields{"deliveries": shown}, err
}

func (d *driver) settle(asked step) {
	delivery, delay := d.pulled[asked.Index], ms(asked.DelayMs)
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

func (d *driver) run(asked step) (fields, error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var handled []string
	var busy, busiest int
	var mu sync.Mutex
	d.consume.Workers = asked.Workers
	consumer, err := penstock.NewConsumer(d.consume) // the number of workers is a setting of the consumer
	flags.Check(err)
	d.consumer = consumer
	err = consumer.Run(ctx, 32, func(_ context.Context, each *penstock.Delivery) (penstock.Verdict, error) {
		mu.Lock()
		if busy++; busy > busiest {
			busiest = busy
		}
		mu.Unlock()
		time.Sleep(ms(asked.HandleMs))
		mu.Lock()
		defer mu.Unlock()
		busy--
		if handled = append(handled, hex.EncodeToString(each.Message.Body)); len(handled) == asked.Count {
			stop()
		}
		switch asked.Verdict {
		case "fail":
			return penstock.VerdictDone, errors.New("the handler failed")
		case "fault":
			panic("the handler failed")
		case "reject":
			return penstock.VerdictReject, nil
		default:
			return penstock.VerdictDone, nil
		}
	})
	return fields{"handled": handled, "busiest": busiest}, err
}

func ms(count int) time.Duration { return time.Duration(count) * time.Millisecond }

func unhex(text string) []byte {
	body, err := hex.DecodeString(text)
	flags.Check(err)
	return body
}

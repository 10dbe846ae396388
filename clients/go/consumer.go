package penstock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	contract "penstock.io/client/gen/penstock"
)

const (
	ackBytes   = 120 // estimated size of one acknowledgement in a request
	pullMargin = 2 * time.Second
)

// Verdict is a handler's verdict on a delivery.
type Verdict int

const (
	VerdictDone   = Verdict(contract.Verdict_DONE)
	VerdictRetry  = Verdict(contract.Verdict_RETRY)  // redeliver after a back-off
	VerdictReject = Verdict(contract.Verdict_REJECT) // to the dead-letter topic now
)

// Delivery is a message under a lease.
type Delivery struct {
	Message    *Message
	ID         string
	Queue      int
	Offset     int64
	Attempt    int // 1 for the first delivery
	StoredAt   time.Time
	ReplyToken []byte    // set: the sender waits for a reply: a message with this as ReplyTo
	ReplyBy    time.Time // the sender stops waiting at this time
	receipt    []byte
}

// ConsumerConfig adds what a consumer reads.
type ConsumerConfig struct {
	Config
	Group     string
	Topics    []string      // nil: all topics of the group's definition
	Invisible time.Duration // how long deliveries are leased; zero: the group's setting
}

// Consumer is one member of a group. Any number of members share the group's messages, without assignment.
//
// Acknowledgements wait here and ride on the next Pull; Close delivers the last ones. What is pulled and not
// acknowledged is redelivered, with Attempt one higher, after its invisible time.
type Consumer struct {
	config  ConsumerConfig
	pool    *pool
	mint    *mint
	pulling sync.Mutex // one pull at a time, so that an acknowledgement goes out once

	mu      sync.Mutex
	acks    []*contract.Ack
	refused int
}

// NewConsumer connects lazily: it fails only on a bad configuration.
func NewConsumer(config ConsumerConfig) (*Consumer, error) {
	config.Config = config.Config.withDefaults()
	pool, err := newPool(config.Config)
	if err != nil {
		return nil, err
	}
	return &Consumer{config: config, pool: pool, mint: newMint(config.Config)}, nil
}

// Pull returns the next deliveries; none when none came within wait (30 s at most). It retries at other proxies until
// the deadline. Errors: an *Error, ErrClosed or the context's.
func (c *Consumer) Pull(ctx context.Context, maxMessages int, wait time.Duration) ([]*Delivery, error) {
	c.pulling.Lock()
	defer c.pulling.Unlock()
	deadline := time.Now().Add(wait + c.config.Deadline)
	refusal := &Error{Code: Unavailable, Reason: "no proxy could be reached before the deadline"}
	var due time.Time
	for failures := 1; ; failures++ {
		now := time.Now()
		start := latest(now, due, c.pool.usableAt())
		if !start.Before(deadline) {
			return nil, refusal
		}
		if err := sleepUntil(ctx, start); err != nil {
			return nil, err
		}
		sent, answer, endpoint, err := c.attempt(ctx, maxMessages, wait)
		var failure *callFailed
		if errors.As(err, &failure) && ctx.Err() == nil {
			refusal = &Error{Code: Unavailable, Reason: failure.Error()}
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		action := Code(answer.Code).Action()
		if action == Done {
			c.pool.praise(endpoint)
			c.settle(sent, answer.AckResults)
			return deliveries(answer.Deliveries), nil
		}
		refusal = &Error{Code: Code(answer.Code), Reason: answer.GetError()}
		if action == Refused {
			return nil, refusal
		}
		if action == Elsewhere {
			c.pool.setAside(endpoint)
			continue
		}
		due = time.Now().Add(max(time.Duration(answer.GetRetryAfterMs())*time.Millisecond, c.config.backoff(failures)))
	}
}

// Done acknowledges. Like all verdicts it travels with the next Pull, Flush or Close.
func (c *Consumer) Done(d *Delivery) { c.acknowledge(d, contract.Verdict_DONE, 0, "") }

// Retry requests redelivery after delay or (zero) the group's back-off.
func (c *Consumer) Retry(d *Delivery, delay time.Duration, reason string) {
	c.acknowledge(d, contract.Verdict_RETRY, delay, reason)
}

// Reject sends it to the dead-letter topic now; the reason is stored with it.
func (c *Consumer) Reject(d *Delivery, reason string) {
	c.acknowledge(d, contract.Verdict_REJECT, 0, reason)
}

// Extend extends its lease.
func (c *Consumer) Extend(d *Delivery, delay time.Duration) {
	c.acknowledge(d, contract.Verdict_EXTEND, delay, "")
}

// Flush delivers the waiting acknowledgements now, without taking messages.
func (c *Consumer) Flush(ctx context.Context) error {
	c.mu.Lock()
	waiting := len(c.acks)
	c.mu.Unlock()
	if waiting == 0 {
		return nil
	}
	_, err := c.Pull(ctx, 0, 0)
	return err
}

// Run pulls and handles until ctx ends, then delivers the last acknowledgements and returns nil. An error from handle
// means VerdictRetry with that error as reason; the verdict beside it is then ignored.
func (c *Consumer) Run(
	ctx context.Context, maxMessages int, handle func(context.Context, *Delivery) (Verdict, error),
) error {
	for ctx.Err() == nil {
		pulled, err := c.Pull(ctx, maxMessages, 5*time.Second)
		if err != nil && ctx.Err() == nil {
			return err
		}
		for _, d := range pulled {
			verdict, err := handle(ctx, d)
			if err != nil {
				c.Retry(d, 0, err.Error())
			} else {
				c.acknowledge(d, contract.Verdict(verdict), 0, "")
			}
		}
	}
	last, cancel := context.WithTimeout(context.Background(), c.config.Deadline)
	defer cancel()
	return c.Flush(last)
}

// AcksRefused counts acknowledgements that were late or invalid: their messages are redelivered.
func (c *Consumer) AcksRefused() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// Close delivers the waiting acknowledgements and closes the connections.
func (c *Consumer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.config.Deadline)
	defer cancel()
	err := c.Flush(ctx)
	c.pool.close()
	return err
}

func (c *Consumer) acknowledge(d *Delivery, verdict contract.Verdict, delay time.Duration, reason string) {
	ack := &contract.Ack{Receipt: d.receipt, Reason: optional(reason)}
	if verdict != contract.Verdict_DONE {
		ack.Verdict = &verdict
	}
	if delay > 0 {
		ack.DelayMs = millis(delay)
	}
	c.mu.Lock()
	c.acks = append(c.acks, ack)
	c.mu.Unlock()
}

func (c *Consumer) attempt(
	ctx context.Context, maxMessages int, wait time.Duration,
) (sent []*contract.Ack, answer *contract.PullResponse, at *endpoint, err error) {
	c.mu.Lock()
	sent = c.acks[:len(c.acks):len(c.acks)]
	c.mu.Unlock()
	count, none := int32(maxMessages), int32(0)
	ask := &contract.PullRequest{
		Credential: c.mint.credential(time.Now()), Group: c.config.Group, Topics: c.config.Topics,
		MaxMessages: &count, WaitMs: millis(wait), Acks: sent,
	}
	if c.config.Invisible > 0 {
		ask.InvisibleMs = millis(c.config.Invisible)
	}
	at, err = c.pool.do(ctx, request{
		size:    len(sent) * ackBytes,
		timeout: wait + pullMargin,
		call: func(client thrift.TClient) (err error) {
			answer, err = contract.NewConsumerClient(client).Pull(ctx, ask)
			return err
		},
		hello: func(client thrift.TClient) error {
			_, err := contract.NewConsumerClient(client).Pull(ctx, &contract.PullRequest{
				Credential: ask.Credential, Group: ask.Group, Topics: ask.Topics, MaxMessages: &none,
			})
			return err
		},
	})
	return sent, answer, at, err
}

// settle drops settled acknowledgements; the others go with the next pull.
func (c *Consumer) settle(sent []*contract.Ack, results []*contract.AckResult_) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var again []*contract.Ack
	for i, result := range results {
		switch action := Code(result.Code).Action(); {
		case i >= len(sent) || action == Done:
		case action == Refused:
			c.refused++
		default:
			again = append(again, sent[i])
		}
	}
	c.acks = append(again, c.acks[len(sent):]...)
}

func deliveries(pulled []*contract.Delivery) []*Delivery {
	made := make([]*Delivery, len(pulled))
	for i, d := range pulled {
		made[i] = &Delivery{
			Message: fromContract(d.Message), ID: d.ID, Queue: int(d.Queue), Offset: d.Offset, Attempt: int(d.Attempt),
			StoredAt: time.UnixMilli(d.StoredAtMs), ReplyToken: d.ReplyToken, receipt: d.Receipt,
		}
		if d.ReplyByMs != nil {
			made[i].ReplyBy = time.UnixMilli(*d.ReplyByMs)
		}
	}
	return made
}

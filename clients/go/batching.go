package penstock

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Batching says when a BatchingProducer sends. Zero values mean the defaults given.
type Batching struct {
	Linger   time.Duration // 5 ms: a message waits for others at most this long; negative: not at all
	Bytes    int           // 256 KiB: a call is made at once when so many bytes wait,
	Messages int           // 1,000: or so many messages
	BytesMax int           // 32 MiB that wait or are on their way; beyond it Send waits
	FullWait time.Duration // 10 s: then Send returns ErrFull; negative: at once
}

func (b Batching) withDefaults() Batching {
	orDuration(&b.Linger, 5*time.Millisecond)
	orDuration(&b.FullWait, 10*time.Second)
	orInt(&b.Bytes, 256<<10)
	orInt(&b.Messages, callMessagesMax)
	orInt(&b.BytesMax, 32<<20)
	return b
}

// Pending is the outcome of one message that is on its way.
type Pending struct {
	done    chan struct{}
	result  Result
	err     error
	message *Message
	size    int
	since   time.Time
}

// Done is closed once the outcome is known.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait blocks until the message is stored or refused, by the producer's deadline; its errors are those of
// Producer.Send, and ErrClosed: it is not stored, because the batching producer was closed first.
func (p *Pending) Wait(ctx context.Context) (Result, error) {
	select {
	case <-p.done:
		return p.result, p.err
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
}

func (p *Pending) end(result Result, err error) {
	p.result, p.err = result, err
	close(p.done)
}

// BatchingProducer collects single messages into calls, made one after another by a goroutine of its own. A call takes
// all that waits, as far as it fits. Messages of one key keep their order, over retries too. A message must not be
// changed before its outcome is known. It is safe for use by many goroutines.
type BatchingProducer struct {
	producer *Producer
	how      Batching

	mu           sync.Mutex
	changed      chan struct{} // closed and replaced with each change that somebody may wait for
	waiting      []*Pending
	waitingBytes int
	bytes        int // of what waits or is on its way
	taken        int // messages so far
	answered     int
	flushTo      int
	closed       bool
}

// NewBatchingProducer sends through producer, which it does not close.
func NewBatchingProducer(producer *Producer, how Batching) *BatchingProducer {
	b := &BatchingProducer{
		producer: producer, how: how.withDefaults(), changed: make(chan struct{}),
	}
	go b.sendAll()
	return b
}

// Send takes a message and gives it an ID if it has none. While as much as BytesMax waits it blocks, until FullWait or
// ctx ends. Errors: ErrFull, ErrClosed or the context's; the message was not taken then.
func (b *BatchingProducer) Send(ctx context.Context, message *Message) (*Pending, error) {
	if message.Topic == "" {
		return nil, fmt.Errorf("penstock: message topic: missing")
	}
	if message.ID == "" {
		message.ID = newID()
	}
	made := &Pending{done: make(chan struct{}), message: message, size: message.size()}
	full := time.Now().Add(b.how.FullWait)
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed && b.bytes >= b.how.BytesMax {
		left := time.Until(full)
		if left <= 0 {
			return nil, ErrFull
		}
		if !b.wait(ctx.Done(), left) {
			return nil, ctx.Err()
		}
	}
	if b.closed {
		return nil, ErrClosed
	}
	made.since = time.Now()
	b.waiting = append(b.waiting, made)
	b.taken++
	b.bytes += made.size
	b.waitingBytes += made.size
	if len(b.waiting) == 1 || b.isEnough() {
		b.tell()
	}
	return made, nil
}

// Flush sends what waits now, and blocks until all that was taken before is answered.
func (b *BatchingProducer) Flush(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.taken
	b.flushTo = last
	b.tell()
	for b.answered < last {
		if !b.wait(ctx.Done(), time.Hour) {
			return ctx.Err()
		}
	}
	return nil
}

// Close sends what waits, until ctx ends at most. What is in no call by then ends with ErrClosed, and Close returns the
// context's error; a call in progress goes on by its own deadline. Later messages are refused.
func (b *BatchingProducer) Close(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.tell()
	for b.answered < b.taken && b.wait(ctx.Done(), time.Hour) {
	}
	for _, each := range b.waiting {
		each.end(Result{}, ErrClosed)
	}
	b.answered += len(b.waiting)
	b.waiting = nil
	b.tell()
	if b.answered < b.taken {
		return ctx.Err()
	}
	return nil
}

// wait blocks until a change, or for so long at most; false when stop came first. The caller has the lock.
func (b *BatchingProducer) wait(stop <-chan struct{}, most time.Duration) bool {
	changed := b.changed
	b.mu.Unlock()
	defer b.mu.Lock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-stop:
		return false
	}
	return true
}

func (b *BatchingProducer) tell() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *BatchingProducer) isEnough() bool {
	return b.waitingBytes >= b.how.Bytes || len(b.waiting) >= b.how.Messages
}

func (b *BatchingProducer) sendAll() {
	for batch := b.nextBatch(); batch != nil; batch = b.nextBatch() {
		messages := make([]*Message, len(batch))
		for i, each := range batch {
			messages[i] = each.message
		}
		results, err := b.producer.SendAll(context.Background(), messages, How{})
		b.mu.Lock()
		for i, each := range batch {
			b.bytes -= each.size
			if err != nil {
				each.end(Result{}, err)
			} else {
				each.end(results[i], results[i].Err())
			}
		}
		b.answered += len(batch)
		b.tell()
		b.mu.Unlock()
	}
}

// nextBatch blocks until a call is to be made; nil when none will be.
func (b *BatchingProducer) nextBatch() []*Pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		left := time.Hour
		if len(b.waiting) > 0 {
			left = time.Until(b.waiting[0].since.Add(b.how.Linger))
			if left <= 0 || b.closed || b.flushTo > b.answered || b.isEnough() {
				return b.take()
			}
		} else if b.closed {
			return nil
		}
		b.wait(nil, left)
	}
}

// take is what fits into one call, at least one message.
func (b *BatchingProducer) take() []*Pending {
	count, size := 0, 0
	for ; count < len(b.waiting) && count < callMessagesMax; count++ {
		if more := b.waiting[count].size; count > 0 && size+more > callBytesMax {
			break
		} else {
			size += more
		}
	}
	batch := b.waiting[:count:count]
	b.waiting = b.waiting[count:]
	b.waitingBytes -= size
	return batch
}

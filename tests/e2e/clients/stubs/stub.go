// Stub sends three messages, pulls and acknowledges them: generated code and Apache Thrift's Go library, nothing of ours.
//
//	stub framed|buffered PRODUCER CONSUMER APP KEY_ID TOPIC GROUP        (secret: PENSTOCK_SECRET)
package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"penstock.io/client/gen/penstock"
)

var bodies = [][]byte{[]byte("one"), []byte("\x00\xff\n\xfe"), {}}

func check(held bool, what string, args ...any) {
	if !held {
		fmt.Fprintf(os.Stderr, "wrong: "+what+"\n", args...)
		os.Exit(1)
	}
}

func connect(at, transport string) thrift.TClient {
	config := &thrift.TConfiguration{ConnectTimeout: 5 * time.Second, SocketTimeout: 15 * time.Second}
	var wrapped thrift.TTransport = thrift.NewTSocketConf(at, config)
	if transport == "framed" {
		wrapped = thrift.NewTFramedTransportConf(wrapped, config)
	} else {
		wrapped = thrift.NewTBufferedTransport(wrapped, 8192)
	}
	check(wrapped.Open() == nil, "connect to %s", at)
	protocol := thrift.NewTBinaryProtocolConf(wrapped, config)
	return thrift.NewTStandardClient(protocol, protocol)
}

func main() {
	transport, producerAt, consumerAt := os.Args[1], os.Args[2], os.Args[3]
	app, keyID, topic, group := os.Args[4], os.Args[5], os.Args[6], os.Args[7]
	ctx := context.Background()

	nowMs := time.Now().UnixMilli()
	mac := hmac.New(sha256.New, []byte(os.Getenv("PENSTOCK_SECRET")))
	fmt.Fprintf(mac, "penstock/1\n%s\n%s\n%d", app, keyID, nowMs)
	credential := &penstock.Credential{App: app, KeyID: keyID, IssuedAtMs: nowMs, Signature: mac.Sum(nil)}

	key, third := "k", topic+"-third"
	var messages []*penstock.Message
	for number, body := range bodies {
		messages = append(messages, &penstock.Message{
			Topic: topic, Key: &key, Body: body, Properties: map[string]string{"number": strconv.Itoa(number)},
		})
	}
	messages[2].ID = &third
	sent, err := penstock.NewProducerClient(connect(producerAt, transport)).Send(ctx, &penstock.SendRequest{
		Credential: credential, Messages: messages,
	})
	check(err == nil && len(sent.Results) == 3, "send: %v", err)
	for number, result := range sent.Results {
		check(result.Code == penstock.Code_OK && result.GetID() != "", "result %v", result)
		check(result.GetQueue() == sent.Results[0].GetQueue(), "one key, one queue: %v", result)
		check(result.Offset != nil && *result.Offset == int64(number), "offset of %v", result)
	}
	check(sent.Results[2].GetID() == third, "the id that was sent along")

	receiver := penstock.NewConsumerClient(connect(consumerAt, transport))
	most, wait, none := int32(10), int32(10_000), int32(0)
	var pulled []*penstock.Delivery
	for len(pulled) < 3 {
		response, err := receiver.Pull(ctx, &penstock.PullRequest{
			Credential: credential, Group: group, Topics: []string{topic}, MaxMessages: &most, WaitMs: &wait,
		})
		check(err == nil && response.Code == penstock.Code_OK && len(response.Deliveries) > 0, "pull: %v %v", response, err)
		pulled = append(pulled, response.Deliveries...)
	}
	var acks []*penstock.Ack
	for number, d := range pulled {
		result, message := sent.Results[number], d.Message
		check(d.ID == result.GetID() && d.Queue == result.GetQueue() && d.Offset == result.GetOffset(), "place of %v", d)
		check(d.Attempt == 1 && d.StoredAtMs > nowMs-60_000 && d.StoredAtMs < nowMs+60_000, "attempt and time of %v", d)
		check(message.Topic == topic && message.GetKey() == key && bytes.Equal(message.Body, bodies[number]), "content of %v", d)
		check(len(message.Properties) == 1 && message.Properties["number"] == strconv.Itoa(number), "properties of %v", d)
		acks = append(acks, &penstock.Ack{Receipt: d.Receipt})
	}

	last, err := receiver.Pull(ctx, &penstock.PullRequest{
		Credential: credential, Group: group, Topics: []string{topic}, MaxMessages: &none, Acks: acks,
	})
	check(err == nil && last.Code == penstock.Code_OK && len(last.Deliveries) == 0, "last pull: %v %v", last, err)
	check(len(last.AckResults) == 3, "results of the acknowledgements: %v", last)
	for _, ack := range last.AckResults {
		check(ack.Code == penstock.Code_OK, "acknowledgement %v", ack)
	}
	fmt.Println("ok")
}

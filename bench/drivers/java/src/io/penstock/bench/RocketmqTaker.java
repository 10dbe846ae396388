package io.penstock.bench;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.constant.ConsumeInitMode;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * POP over remoting, as the push consumer does it in that mode: a pop asks one topic for messages of any of its queues, and each message is
 * acknowledged by a request of its own. The acknowledgements of one take are in flight while the next one pops.
 */
final class RocketmqTaker implements Target.Taker {
    private static final String GROUP = "bench-readers";
    private static final int ANY_QUEUE = -1;
    private static final long INVISIBLE_MS = 60_000; // as the push consumer's
    private static final long POLL_MS = 1_000; // its own 15 s would outlast the window
    private static final long TIMEOUT_MS = 10_000;

    private final MQClientAPIImpl client;
    private final String broker;
    private final String address;
    private final String topic;
    private final int most;
    private CompletableFuture<?> acknowledged = CompletableFuture.completedFuture(null);

    RocketmqTaker(MQClientAPIImpl client, String broker, String address, String topic, int most) {
        this.client = client;
        this.broker = broker;
        this.address = address;
        this.topic = topic;
        this.most = most;
    }

    @Override
    public int take() throws Exception {
        CompletableFuture<List<MessageExt>> popped = new CompletableFuture<>();
        client.popMessageAsync(broker, address, popHeader(), TIMEOUT_MS, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                popped.complete(result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList());
            }

            @Override
            public void onException(Throwable fault) {
                popped.completeExceptionally(fault);
            }
        });
        List<MessageExt> messages = popped.get();
        acknowledged.get();
        CompletableFuture<?>[] acks = new CompletableFuture<?>[messages.size()];
        for (int i = 0; i < acks.length; i++) acks[i] = acknowledge(messages.get(i));
        acknowledged = CompletableFuture.allOf(acks);
        return acks.length;
    }

    private PopMessageRequestHeader popHeader() {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(GROUP);
        header.setTopic(topic);
        header.setQueueId(ANY_QUEUE);
        header.setMaxMsgNums(most);
        header.setInvisibleTime(INVISIBLE_MS);
        header.setPollTime(POLL_MS);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(ConsumeInitMode.MIN);
        header.setExpType("TAG");
        header.setExp("*");
        header.setBrokerName(broker);
        return header;
    }

    private CompletableFuture<?> acknowledge(MessageExt message) throws Exception {
        String receipt = message.getProperty(MessageConst.PROPERTY_POP_CK);
        String[] parts = ExtraInfoUtil.split(receipt);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(GROUP);
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, message.getTopic(), GROUP));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(receipt);
        header.setBrokerName(broker);
        CompletableFuture<Void> done = new CompletableFuture<>();
        client.ackMessageAsync(address, TIMEOUT_MS, new AckCallback() {
            @Override
            public void onSuccess(AckResult result) {
                if (result.getStatus() == AckStatus.OK) done.complete(null);
                else done.completeExceptionally(new IllegalStateException("acknowledgement: " + result.getStatus()));
            }

            @Override
            public void onException(Throwable fault) {
                done.completeExceptionally(fault);
            }
        }, header);
        return done;
    }
}

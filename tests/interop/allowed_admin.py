"""Where admin tools may print something else of our servers than of Apache 5.5.0, each row with its reason.

First what Apache's mqadmin prints of our servers, then what our own prints where Apache's prints otherwise. A
row that no run needs any more is an error: see test_mqadmin and test_our_mqadmin.
"""

from __future__ import annotations

import json
import re

from .allowed import Allowed
from .clients import Answers
from .compare import ABSENT

# A message that was delayed says where it waited, in a field that consumers do not use, so that a crash does
# not deliver it twice (D29). The rest of the line is compared.
MARK = re.compile(r"preparedTransactionOffset=-\d+")


def without_marks(answers: Answers) -> Answers:
    cleaned: Answers = json.loads(MARK.sub("preparedTransactionOffset=0", json.dumps(answers)))
    return cleaned


NO_SUCH_PART = "a setting of a part of Apache's server that we do not have"
KEY_OF_4_9 = "a setting or figure by its name of 4.9 as well, which its tools ask for"
OTHER_SETTING = "a setting of ours"
OTHER_FIGURE = "a figure of ours: Apache's broker status says nothing about its slaves"
NO_VALUE = "Apache leaves out a setting that has no value"
BAD_VALUE = "Apache says that it set a value that cannot be one, and did not; we refuse it (D14)"
UNKNOWN_KEY = "Apache says that it set a key that it does not know; we refuse it (D104)"
LOOKING = "5.5.0 makes a group that was only asked for, or is being deleted; we do not"
EARLY_COMMIT = "5.5.0 refuses the commit of a group that it does not know yet; we create the group (C8)"
ANY_ORDER = "in the order of Java's hash table"
TOOLS_OF_4_9 = "mqadmin 4.9.8 stumbles over 5.5.0, where a setting or figure has another name; we have both"

ACCESS_AND_TLS = (
    "settings that Apache keeps elsewhere (a file of its own, properties of the process) or lacks"
)
ACCESS_KEYS = (
    *("auth*", "initAuthenticationUser", "innerClientAuthenticationCredentials", "migrateAuthFromV1Enabled"),
    *("tls*", "proxyProtocolFrom"),
)
GROUP_KEYS = ("dLegerGroup", "dLegerPeers", "dLegerSelfId", "preferredLeaderId", "storePathDLedgerCommitLog")

ALLOWED_MQADMIN = (
    Allowed("* / get*Config* / *", NO_SUCH_PART, seen=ABSENT),
    Allowed("* / brokerStatus -? * / *QueueCapacity", "requests wait in no queue of threads", seen="0"),
    Allowed("* / brokerStatus -? * / brokerVersion", KEY_OF_4_9, recorded=ABSENT),
    Allowed("* / brokerStatus -? * / getTransferedTps", KEY_OF_4_9, recorded=ABSENT),
    Allowed("* / getBrokerConfig* / flushConsumeQueueThoroughInterval", OTHER_SETTING, seen="10000"),
    Allowed(
        "* / getBrokerConfig* / rocketmq.broker.rebalance.lockMaxLiveTime", OTHER_SETTING, recorded=ABSENT
    ),
    Allowed("* / brokerStatus -? * / replica*", OTHER_FIGURE, recorded=ABSENT),
    Allowed("* / getBrokerConfig* / haMasterAddress", NO_VALUE, recorded=ABSENT),
    *(Allowed(f"* / getBrokerConfig* / {key}", NO_VALUE, recorded=ABSENT) for key in GROUP_KEYS),
    *(
        Allowed(f"* / getBrokerConfig* / dLeger{what}", OTHER_SETTING, recorded=ABSENT)
        for what in ("HeartbeatInterval", "MaxMissedHeartbeats", "M*VoteWait", "QuorumTimeout")
    ),
    *(Allowed(f"* / getBrokerConfig* / {key}", ACCESS_AND_TLS, recorded=ABSENT) for key in ACCESS_KEYS),
    Allowed("* / getBrokerConfig* / haSlaveFallbehindMax", KEY_OF_4_9, recorded=ABSENT),
    Allowed("* / getBrokerConfig* / filterServerNums", KEY_OF_4_9, recorded=ABSENT),
    Allowed("* / getBrokerConfig* / filterModule*", OTHER_SETTING, recorded=ABSENT),
    Allowed("* / getBrokerConfig* / maxTransferBytesInBulk", OTHER_SETTING, recorded=ABSENT),
    Allowed("* / getBrokerConfig* / transactionalIdRetentionHours", OTHER_SETTING, recorded=ABSENT),
    Allowed("* / getBrokerConfig* / recallMessageEnable", OTHER_SETTING, seen="true"),
    Allowed("* / getBrokerConfig* / timerMaxDelaySec", OTHER_SETTING, seen="315360000"),
    Allowed("export / file configs.json / * / filterServerNums", KEY_OF_4_9, recorded=ABSENT),
    Allowed(
        "groups / updateSubGroup * --attributes +nosuch=1*",
        "Apache's words with the place in its code",
        recorded="*unsupported key: nosuch, org.apache*",
        seen="*unsupported key: nosuch*",
    ),
    Allowed("* / getNamesrvConfig* / configStorePath", OTHER_SETTING),
    *(
        Allowed(f"* / getNamesrvConfig* / {key}", ACCESS_AND_TLS, recorded=ABSENT)
        for key in (*ACCESS_KEYS, "aclEnable", "clusterName", "nameServerReads")
    ),
    Allowed("* / getNamesrvConfig* / httpPort", OTHER_SETTING, recorded=ABSENT),
    Allowed("* / getNamesrvConfig* / namesrvAddr", OTHER_SETTING, recorded=ABSENT),
    Allowed("settings / updateBrokerConfig * -k fileReservedTime -v many", BAD_VALUE),
    Allowed("settings / updateBrokerConfig * -k nosuchkey -v 1", UNKNOWN_KEY),
    Allowed("* -a +message.type=NONE*", ANY_ORDER, recorded="*not in set*", seen="*not in set*"),
    Allowed("removing / getConsumerConfig -g barred*", LOOKING),
    Allowed("export / file * / subscriptionGroupTable / nogroup", LOOKING, seen=ABSENT),
    Allowed("offsets / * -g nogroup *", LOOKING, seen="*Group nogroup does not exist*"),
    Allowed(
        "offsets / cloneGroupOffset -s live -d twin -t many",
        EARLY_COMMIT,
        recorded="*Group twin not exist!*",
        seen="*clone group offset success*",
    ),
    Allowed("export / exportConfigs -c DefaultCluster*", TOOLS_OF_4_9, recorded="*<exception>*"),
    Allowed("export / file configs.json", TOOLS_OF_4_9, recorded="None"),
    Allowed("statistics / exportMetrics -c DefaultCluster*", TOOLS_OF_4_9, recorded="*getTransferedTps*"),
    Allowed("statistics / file metrics.json", TOOLS_OF_4_9, recorded="None"),
    Allowed("statistics / clusterList", TOOLS_OF_4_9, recorded="*getTransferedTps*"),
    Allowed("endless / clusterList -i 60 / printed", TOOLS_OF_4_9),
    Allowed(
        "statistics / file metrics.json / * / cpuNum", "the number of threads of a kind that we do not have"
    ),
)

NOTHING_SAID = "Apache prints nothing, or goes on; ours says what is not there and fails (D25)"
OWN_WORDS = "the words of Apache's client; ours has those of the name server"

ALLOWED_OUR_MQADMIN = (
    Allowed("frame / the commands that there are", "ours has those of 4.9, and of 5.x what it can do"),
    Allowed("frame / topicStatus -h", "Apache misses an option before it can help"),
    Allowed("topics / updateTopic * -t ordered * -o true", "Apache prints a stack on its way to success"),
    Allowed("topics / allocateMQ *", ANY_ORDER),
    Allowed("* / getConsumerConfig -g *", NOTHING_SAID, recorded="{}", seen="failed: no broker has*"),
    Allowed("messages / queryMsgByOffset *", NOTHING_SAID, recorded="[[]]", seen="failed: *"),
    Allowed("statistics / clusterList -c nowhere", NOTHING_SAID, seen="failed: there is no cluster*"),
    Allowed("export / file *.json (2)", NOTHING_SAID, seen="None"),
    Allowed("* -t nowhere*", OWN_WORDS, recorded="*not matched route info", seen="*No topic route info*"),
    Allowed("messages / consumeMessage * -c 1* / *", "Apache counts one too many, and has a slip of the pen"),
    Allowed("sending / checkMsgSendRT -t 'a b' *", "nothing was sent, so no queue was chosen"),
    Allowed("sending / queryMsgById * -s false", "Apache does nothing at all; ours shows the message"),
    Allowed("monitoring / startMonitoring", "Apache writes it to a log file", recorded="[[]]"),
    Allowed(
        "monitoring / consumerConnection *",
        "ours has ended, and so has its member",
        seen="failed: no consumer*",
    ),
)

FAILS_AT_4_9 = "mqadmin 5.5.0 fails at 4.9.7; ours asks for what 4.9 knows"

ALLOWED_OUR_MQADMIN_AT_4_9 = (
    Allowed("*", FAILS_AT_4_9, recorded="failed: request type * not supported"),
    Allowed("* / queryMsgById *", FAILS_AT_4_9, recorded="*trackType=UNKNOWN*", seen="*trackType=CONSUMED*"),
    Allowed("statistics / file metrics.json", FAILS_AT_4_9, recorded="None"),
    Allowed("offsets / resetOffsetByTime * -q 1 -o 1", FAILS_AT_4_9, recorded="failed: *not online*"),
    Allowed("commands of 5 / topicRoute -t y -l", FAILS_AT_4_9, recorded="failed: *"),
    Allowed("commands of 5 / getConsumerConfig -g listed / *", FAILS_AT_4_9, recorded=ABSENT),
    Allowed("export / file * / topicConfigTable / typed / attributes", "4.9 has no attributes", seen=ABSENT),
    Allowed(
        "offsets / resetOffsetByTime * -c DefaultCluster / broker-a 2 *", "Apache sets no queue back to 0"
    ),
    Allowed(
        "messages / printMsg -t plain -b {begun} -e {between} / *",
        "for a later time 4.9.7 finds the last message, which Apache's then leaves out; ours looks at it",
    ),
)

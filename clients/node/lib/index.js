'use strict';
/** A client of Penstock: `Producer.send`, `Consumer.pull` and `run`. See the README beside this package. */

const { Action, Code, actionOf, nameOf } = require('./codes');
const { BatchingProducer } = require('./batching');
const { Consumer } = require('./consumer');
const { ClosedError, ContractError, FullError, PenstockError, PullError, SendError } = require('./errors');
const { Producer } = require('./producer');
const { Verdict } = require('../gen/consumer_types');
const { Durability } = require('../gen/producer_types');

const errors = { ClosedError, ContractError, FullError, PenstockError, PullError, SendError };
const clients = { BatchingProducer, Consumer, Producer };
module.exports = { Action, Code, Durability, Verdict, actionOf, nameOf, ...clients, ...errors };

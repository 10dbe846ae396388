'use strict';
/** A client of Penstock: `Producer.send`, `Consumer.pull` and `run`. See the README beside this package. */

const { Action, Code, actionOf, nameOf } = require('./codes');
const { Consumer } = require('./consumer');
const { ClosedError, ContractError, PenstockError, PullError, SendError } = require('./errors');
const { Producer } = require('./producer');
const { Verdict } = require('../gen/consumer_types');
const { Durability } = require('../gen/producer_types');

const errors = { ClosedError, ContractError, PenstockError, PullError, SendError };
module.exports = { Action, Code, Consumer, Durability, Producer, Verdict, actionOf, nameOf, ...errors };

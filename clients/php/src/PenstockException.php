<?php

namespace Penstock\Client;

/** Base of all exceptions of this client: SendException, PullException, ContractException. */
class PenstockException extends \RuntimeException
{
}

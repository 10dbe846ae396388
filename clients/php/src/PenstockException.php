<?php

namespace Penstock\Client;

/** Ancestor of all that this client throws: SendException, PullException, ContractException. */
class PenstockException extends \RuntimeException
{
}

<?php

/**
 * Loads the client, the generated contract and Apache Thrift without Composer.
 *
 * Debian's php-thrift puts the classes of `Thrift\` straight into /usr/lib/php, with no folder of that name; PENSTOCK_THRIFT_PHP
 * names another place.
 */

spl_autoload_register(static function (string $class): void {
    $roots = [
        'Penstock\\Client\\' => __DIR__ . '/src/',
        'Penstock\\' => __DIR__ . '/gen/Penstock/',
        'Thrift\\' => (getenv('PENSTOCK_THRIFT_PHP') ?: '/usr/lib/php') . '/',
    ];
    foreach ($roots as $prefix => $root) {
        if (str_starts_with($class, $prefix)) {
            $file = $root . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
            if (is_file($file)) {
                require $file;
            }
            return;
        }
    }
});

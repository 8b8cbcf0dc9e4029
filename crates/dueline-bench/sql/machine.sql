-- The settings that decide how fast writes are, as this session has them.
select name, current_setting(name) from unnest(array[
    'server_version', 'shared_buffers', 'synchronous_commit', 'fsync', 'full_page_writes', 'wal_compression',
    'wal_level', 'wal_buffers', 'max_wal_size', 'checkpoint_timeout', 'autovacuum', 'autovacuum_naptime',
    'autovacuum_max_workers', 'work_mem', 'effective_io_concurrency', 'huge_pages', 'data_checksums',
    'commit_delay', 'jit'
]) as name

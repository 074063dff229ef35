create schema if not exists "walsink";
create table if not exists "walsink"."version" (version integer primary key);
insert into "walsink"."version" values (1) on conflict do nothing;
create table if not exists "walsink"."lane" (
	sink text not null, lane text not null, fence bigint not null, seq bigint not null,
	chain bytea not null, tip bytea not null, checkpoint bigint not null, position bytea,
	partial json, records bigint not null, dead bigint not null,
	target bigint not null, label text not null, ledger bigint not null, updated_at timestamptz not null,
	primary key (sink, lane)) with (fillfactor = 50);
create table if not exists "walsink"."audit" (
	sink text not null, lane text not null, seq bigint not null, checkpoint bigint not null,
	prev bytea not null, chain bytea not null, records bigint not null, bytes bigint not null,
	digest bytea not null, position bytea, format text not null, sealed_at bigint not null,
	dead bigint not null, flushed_at timestamptz not null,
	primary key (sink, lane, seq));
create table if not exists "walsink"."dead_letter" (
	sink text not null, lane text not null, seq bigint not null, number bigint not null,
	checkpoint bigint not null, record bytea not null, field text not null, code text not null,
	reason text not null, at timestamptz not null,
	primary key (sink, lane, seq, number));
create table orders (n bigint not null, at timestamptz, amount numeric(10,2), note text, paid boolean);
insert into walsink.lane (sink, lane, fence, seq, chain, tip, checkpoint, position, partial, records, dead, target, label, ledger, updated_at)
	values ('job', '000', '2', '1', '\x2be3987b11bb8a9d1f942684c2ab5a1ed7980638252cfe5cff8b1efbdca44366', '\x2be3987b11bb8a9d1f942684c2ab5a1ed7980638252cfe5cff8b1efbdca44366', '1', '\x35', null, '5', '0', '16385', '"public"."orders"', '16396', '2026-11-30 08:29:10.646939+00');
insert into walsink.audit (sink, lane, seq, checkpoint, prev, chain, records, bytes, digest, position, format, sealed_at, dead, flushed_at)
	values ('job', '000', '1', '1', '\x1b4b6aec6756fe5c6c1758a673fcae3eee5878fde65c3cebe2ccec5c0b8ae961', '\x2be3987b11bb8a9d1f942684c2ab5a1ed7980638252cfe5cff8b1efbdca44366', '5', '215', '\xa40e43b1ce91080d3532661e3aac9854', '\x35', 'postgres copy text 1 insert d40ca5849a59dbec', '1796027350613', '0', '2026-11-30 08:29:10.646939+00');
insert into public.orders (n, at, amount, note, paid)
	values ('0', '2024-01-02 03:04:00.5+00', '0.50', 'note	0\', 't');
insert into public.orders (n, at, amount, note, paid)
	values ('1', '2024-01-02 03:04:01.5+00', '1.50', 'note	1\', 'f');
insert into public.orders (n, at, amount, note, paid)
	values ('2', '2024-01-02 03:04:02.5+00', '2.50', 'note	2\', 't');
insert into public.orders (n, at, amount, note, paid)
	values ('3', '2024-01-02 03:04:03.5+00', '3.50', null, 'f');
insert into public.orders (n, at, amount, note, paid)
	values ('4', '2024-01-02 03:04:04.5+00', '4.50', 'note	4\', 't');

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
grant usage on schema "walsink" to "app ""role""";
grant select on "walsink"."version" to "app ""role""";
grant select, insert, update on "walsink"."lane" to "app ""role""";
grant select, insert, update, delete on "walsink"."audit", "walsink"."dead_letter" to "app ""role""";

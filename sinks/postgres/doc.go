// Package postgres is the sink for PostgreSQL.
package postgres

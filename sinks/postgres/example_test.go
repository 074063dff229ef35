package postgres_test

import (
	"context"
	"errors"
	"iter"
	"log"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks/postgres"
)

// An order is a row: the fields are matched with the columns by name, or by the tag db.
type order struct {
	ID    int64
	Item  string
	Cents int64 `db:"price_cents"`
}

// Rows and position go into the database in one transaction, once per checkpoint:
//
//	create table orders (id bigint, item text, price_cents bigint)
func Example() {
	if err := copyOrders(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// ordersFrom is the source: order number n and those that follow.
func ordersFrom(n int) iter.Seq2[int, order] {
	return func(yield func(int, order) bool) {
		for ; n < 10_000 && yield(n, order{ID: int64(n), Item: "tea", Cents: 350}); n++ {
		}
	}
}

// copyOrders reads orders from where the ledger in the database says.
func copyOrders(ctx context.Context) (err error) {
	pool, err := pgxpool.New(ctx, "postgres://me@localhost/shop")
	if err != nil {
		return err
	}
	defer pool.Close()
	sink, err := postgres.Open(ctx, pool, postgres.Options{Table: "orders"})
	if err != nil {
		return err
	}
	encode, err := postgres.Rows[order](sink)
	if err != nil {
		return errors.Join(err, sink.Close())
	}
	out, err := walsink.Open(ctx, sink, walsink.Options{Dir: "state", ID: "orders"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	lane, err := out.Lane(ctx, walsink.DefaultLane)
	if err != nil {
		return err
	}
	orders := walsink.NewTyped(lane, encode)

	next, _ := strconv.Atoi(string(out.Position())) // nil, the beginning, is 0
	for n, o := range ordersFrom(next) {
		if err := orders.Append(ctx, o); err != nil {
			return err
		}
		if n%1000 == 999 {
			if _, err := out.Checkpoint(ctx, strconv.AppendInt(nil, int64(n)+1, 10)); err != nil {
				return err
			}
		}
	}
	return out.Drain(ctx)
}

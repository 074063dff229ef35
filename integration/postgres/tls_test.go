package postgres_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

// certificate makes a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "walsink test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", secret)
}

func TestTLS(t *testing.T) {
	server := servers.StartPostgres(t)
	d := dbAt(t, server.Database(), plainTable)
	cert, key := certificate(t)
	data := one[string](d, "show data_directory")
	for name, text := range map[string]string{"server.crt": cert, "server.key": key} {
		d.exec("copy (select '" + strings.TrimSpace(text) + "') to program 'sed ''s/\\\\n/\\n/g'' > " + data + "/" + name + " && chmod 600 " + data + "/" + name + "'")
	}
	d.exec("alter system set ssl = on")
	d.exec("select pg_reload_conf()")
	d.until("TLS", "select current_setting('ssl') = 'on'")
	root := filepath.Join(t.TempDir(), "root.crt")
	if err := os.WriteFile(root, []byte(cert), 0o600); err != nil {
		t.Fatal(err)
	}
	plain := strings.Replace(d.dsn, "localhost", "127.0.0.1", 1)
	secure := strings.Replace(plain, "sslmode=disable", "sslmode=verify-full&sslrootcert="+root, 1)
	s := d.openAt(secure, postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 1000)...)
	l, m := acquire(t, s, lane.id)
	flush(t, l, lane.step(m, 1))
	wantIDs(d, 0, 1000)
	if n := one[int](d, "select count(*) from pg_stat_ssl join pg_stat_activity using (pid) where ssl and datname = current_database()"); n == 0 {
		t.Error("no connection with TLS")
	}
	other, _ := certificate(t)
	if err := os.WriteFile(root, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Open(testContext(t), d.pool(secure), postgres.Options{Table: "t"}); err == nil || sinks.KindOf(err) == 0 {
		t.Errorf("a certificate of somebody else: %v", err)
	}
}

package redis_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// TestTLS flushes over TLS, and refuses a server that nobody vouches for.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	roots := certificate(t, dir)
	port := freePort(t)
	startNode(t, "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no",
		"--tls-cert-file", filepath.Join(dir, "cert.pem"), "--tls-key-file", filepath.Join(dir, "key.pem"))
	o := quick("127.0.0.1:" + strconv.Itoa(port))
	o.TLSConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	c := connectWith(t, o)
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Skipf("this redis-server has no TLS: %v", err)
	}
	in := countInput(t, "0", 3000, 1000)
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	in.finish(t, lane, mark)
	checkCounters(t, c, 3000)

	stranger := quick(o.Addr)
	stranger.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if _, err := redis.Open(t.Context(), connectWith(t, stranger), redis.Options{}); sinks.KindOf(err) != sinks.Permanent {
		t.Errorf("a certificate that nobody has signed: %v, want permanent", err)
	}
}

// certificate makes one for 127.0.0.1 that signs itself.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

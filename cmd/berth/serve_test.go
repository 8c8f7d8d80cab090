package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Strangers are let in only by who says so: beyond loopback it takes tokens, or
// --insecure.
func TestWhoMayListenWhere(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.json")
	if err := os.WriteFile(tokens, []byte(`[{"name":"a","token":"long-enough","roles":["worker"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		listen   string
		tokens   string
		insecure bool
		ok       bool
	}{
		{"127.0.0.1:7410", "", false, true},
		{"[::1]:0", "", false, true},
		{"localhost:0", "", false, true},
		{"0.0.0.0:7410", "", false, false},
		{":7410", "", false, false},
		{"[::]:7410", "", false, false},
		{"10.0.0.1:7410", "", false, false},
		{"berth.example:7410", "", false, false},
		{"0.0.0.0:7410", "", true, true},
		{"0.0.0.0:7410", tokens, false, true},
		{"0.0.0.0:7410", tokens + ".not", true, false},
		{"7410", "", true, false},
	} {
		set, err := (&serveCmd{Listen: tt.listen, Tokens: tt.tokens, Insecure: tt.insecure}).checkExposure()
		if (err == nil) != tt.ok || tt.ok && set.Empty() != (tt.tokens == "") {
			t.Errorf("%s with tokens %q, insecure %v: %v", tt.listen, tt.tokens, tt.insecure, err)
		}
	}
}

// Silence cannot be noticed before a heartbeat is due, nor end before it begins.
func TestTimesThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		heartbeat, suspect, down time.Duration
		ok                       bool
	}{
		{2 * time.Second, 6 * time.Second, 15 * time.Second, true},
		{30 * time.Second, 20 * time.Second, 5 * time.Second, false},
		{6 * time.Second, 6 * time.Second, 15 * time.Second, false},
		{2 * time.Second, 15 * time.Second, 15 * time.Second, false},
		{0, 6 * time.Second, 15 * time.Second, false},
		{-time.Second, 6 * time.Second, 15 * time.Second, false},
	} {
		err := (&serveCmd{Heartbeat: tt.heartbeat, SuspectAfter: tt.suspect, DownAfter: tt.down}).checkTimes()
		if (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	err := run(t.Context(), []string{
		"serve", "--listen", "127.0.0.1:0", "--store", filepath.Join(t.TempDir(), "berth.db"),
		"--suspect-after", "20s", "--down-after", "5s", "--heartbeat", "30s",
	}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--heartbeat 30s, --suspect-after 20s, --down-after 5s") {
		t.Errorf("served with them: %v", err)
	}
}

// certificate writes a self-signed certificate for 127.0.0.1 and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, is, is, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", secret)
}

// serveLog is the log of a berth serve, which says once where it serves.
type serveLog struct {
	output
	url chan string
}

var servedURL = regexp.MustCompile(`url=(\S+)`)

func (l *serveLog) Write(p []byte) (int, error) {
	if m := servedURL.FindSubmatch(p); m != nil {
		l.url <- string(m[1])
	}
	return l.output.Write(p)
}

// started runs berth serve until the test ends, and returns the URL that it says.
func started(t *testing.T, args ...string) string {
	t.Helper()
	log, done := &serveLog{url: make(chan string, 1)}, make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--store", t.TempDir(), "--shutdown-delay", "1ms"}, args...)
	go func() { done <- run(ctx, args, new(output), log) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("berth serve ends with %v\n%s", err, log.String())
		}
	})
	select {
	case url := <-log.url:
		return url
	case err := <-done:
		done <- err
		t.Fatalf("berth serve does not serve\n%s", log.String())
		return ""
	}
}

// Over TLS, and with certificates of callers where they are asked for.
func TestServeOverTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	get := func(url string, own ...tls.Certificate) error {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: own, MinVersion: tls.VersionTLS12}}
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // read to its end
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	open := started(t, "--tls-cert", cert, "--tls-key", key)
	if err := get(open); !strings.HasPrefix(open, "https://") || err != nil {
		t.Errorf("%s: %v", open, err)
	}
	closed := started(t, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", cert)
	if err := get(closed); err == nil {
		t.Error("a caller without a certificate is let in")
	}
	if err := get(closed, pair); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
}

func TestTLSFilesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	for name, tt := range map[string]struct {
		c    serveCmd
		says string
	}{
		"no key":                        {serveCmd{TLSCert: cert}, "load the certificate"},
		"no certificate":                {serveCmd{TLSKey: key}, "load the certificate"},
		"a key that is a certificate":   {serveCmd{TLSCert: cert, TLSKey: cert}, "load the certificate"},
		"a client CA alone":             {serveCmd{TLSClientCA: cert}, "--tls-client-ca needs"},
		"a client CA that is not there": {serveCmd{TLSCert: cert, TLSKey: key, TLSClientCA: cert + ".not"}, "read the client CA"},
		"a client CA that is a key":     {serveCmd{TLSCert: cert, TLSKey: key, TLSClientCA: key}, "holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.c.Listen, tt.c.MaxConnections = "127.0.0.1:0", 1
			l, err := tt.c.listen(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want it to say %q", err, tt.says)
			}
			if l != nil {
				t.Error("the port is left open")
			}
		})
	}
}

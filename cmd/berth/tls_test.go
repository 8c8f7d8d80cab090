package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// authority is a private CA.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	var der []byte
	der, a.key = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.cert, _ = x509.ParseCertificate(der)
	a.file = writePEM(t, "CERTIFICATE", der)
	return a
}

// issue writes a certificate for an address, or for a caller, and its key.
func (a *authority) issue(ips ...net.IP) (cert, key string) {
	a.t.Helper()
	der, private := a.sign(&x509.Certificate{
		IPAddresses: ips, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return writePEM(a.t, "CERTIFICATE", der), writePEM(a.t, "EC PRIVATE KEY", secret)
}

// sign signs a new certificate, with its own key the first.
func (a *authority) sign(is *x509.Certificate) (der []byte, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	is.SerialNumber, is.NotBefore, is.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	by, with := a.cert, a.key
	if by == nil {
		by, with = is, key
	}
	if der, err = x509.CreateCertificate(rand.Reader, is, by, &key.PublicKey, with); err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

func writePEM(t *testing.T, kind string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), strings.ToLower(strings.ReplaceAll(kind, " ", "-"))+".pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// secureBerth is a Berth that asks its callers for certificates.
type secureBerth struct {
	t        *testing.T
	url      string
	ca       *authority
	identity []string // flags of a caller who is let in
}

func startSecure(t *testing.T) *secureBerth {
	t.Helper()
	b := &secureBerth{t: t, ca: newAuthority(t, "harbour")}
	cert, key := b.ca.issue(net.IPv4(127, 0, 0, 1))
	b.url = started(t, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", b.ca.file, "--down-after", "1h", "--suspect-after", "30m")
	cert, key = b.ca.issue()
	b.identity = []string{"--ca", b.ca.file, "--cert", cert, "--cert-key", key}
	return b
}

// run runs a command of the URL given with flags.
func (b *secureBerth) run(command, url string, flags []string) (string, error) {
	b.t.Helper()
	to := "--berth"
	if strings.HasPrefix(command, "simulate") {
		to = "--from"
	}
	var out bytes.Buffer
	err := run(b.t.Context(), slices.Concat(strings.Fields(command), []string{to, url}, flags), &out, io.Discard)
	return out.String(), err
}

// must runs a command as a caller who is let in.
func (b *secureBerth) must(command string) string {
	b.t.Helper()
	out, err := b.run(command, b.url, b.identity)
	if err != nil {
		b.t.Fatalf("berth %s: %v", command, err)
	}
	return out
}

// worker runs a simulated worker until the test ends.
func (b *secureBerth) worker(id string) {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	args := append([]string{"sim-worker", "--id", id, "--listen", freeAddress(b.t), "--berth", b.url}, b.identity...)
	go func() { done <- run(ctx, args, io.Discard, io.Discard) }()
	b.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.t.Errorf("berth sim-worker: %v", err)
		}
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // only its address is of use
	return listener.Addr().String()
}

// ready waits until so many instances are.
func (b *secureBerth) ready(n int) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		list := b.must("instances --json")
		if strings.Count(list, `"state":"ready"`) == n {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("not ready: %s", list)
		}
	}
}

// With a private CA and a certificate of its own an operator's commands, and workers,
// come through, every one of them.
func TestCommandsWithCertificates(t *testing.T) {
	t.Parallel()
	b := startSecure(t)
	b.worker("i1")
	b.worker("i2")
	b.ready(2)
	for _, command := range []string{
		"route chat-1", "instances", "instances --cheapest 2", "cordon i1", "uncordon i1", "rebalance", "jobs",
		"drain i1 --dry-run", "simulate --event 10s:add:1 --duration 20s",
	} {
		b.must(command)
	}
	var job jobAnswer
	if err := json.Unmarshal([]byte(b.must("drain i1 --grace 0s --json")), &job); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"jobs " + job.ID, "jobs watch " + job.ID, "jobs cancel " + job.ID, "simulate --check " + job.ID} {
		b.must(command)
	}
	for _, command := range []string{"jobs pause ", "jobs resume "} {
		if _, err := b.run(command+job.ID, b.url, b.identity); err == nil || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// Without the right flags each of them says which one helps.
func TestCommandsSayWhichFlagHelps(t *testing.T) {
	t.Parallel()
	b := startSecure(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	other := newAuthority(t, "another harbour")
	foreign, foreignKey := other.issue()
	elsewhere, elsewhereKey := b.ca.issue(net.IPv4(10, 0, 0, 1))
	misnamed := started(t, "--tls-cert", elsewhere, "--tls-key", elsewhereKey)
	own, ownKey := b.identity[3], b.identity[5]
	flags := func(f ...string) []string { return f }
	for name, tt := range map[string]struct {
		url   string
		flags []string
		says  string
	}{
		"nothing":                     {b.url, nil, "--ca names the file of its CA"},
		"another CA":                  {b.url, flags("--ca", other.file), "not of the CA in --ca " + other.file},
		"no certificate":              {b.url, flags("--ca", b.ca.file), "--cert and --cert-key name one"},
		"a certificate of another CA": {b.url, flags("--ca", b.ca.file, "--cert", foreign, "--cert-key", foreignKey), "does not take the certificate in --cert " + foreign},
		"a CA that is not there":      {b.url, flags("--ca", own+".not"), "--ca: open " + own + ".not: no such file"},
		"a CA that is a key":          {b.url, flags("--ca", ownKey), "--ca: " + ownKey + " holds no certificate"},
		"a certificate alone":         {b.url, flags("--ca", b.ca.file, "--cert", own), "--cert needs --cert-key"},
		"a key alone":                 {b.url, flags("--ca", b.ca.file, "--cert-key", ownKey), "--cert-key needs --cert"},
		"a key of another":            {b.url, flags("--cert", own, "--cert-key", foreignKey), "--cert " + own + " with --cert-key " + foreignKey},
		"http to one that speaks TLS": {"http" + strings.TrimPrefix(b.url, "https"), b.identity, "begins with https://"},
		"https to one that does not":  {"https" + strings.TrimPrefix(plain.URL, "http"), b.identity, "begins with http://"},
		"a certificate of another name": {
			misnamed, b.identity, "of another name than its URL",
		},
	} {
		for _, command := range []string{
			"route s", "instances", "cordon i1", "uncordon i1", "drain i1", "rebalance", "jobs", "jobs watch j", "jobs pause j",
			"jobs resume j", "jobs cancel j", "simulate", "simulate --check j", "sim-worker --id i1 --listen 127.0.0.1:0",
		} {
			t.Run(name+"/"+command, func(t *testing.T) {
				t.Parallel()
				if _, err := b.run(command, tt.url, tt.flags); err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%v, want an error that says %q", err, tt.says)
				}
			})
		}
	}
}

// Every command that calls a Berth has the flags.
func TestEveryCallerHasTheFlagsOfTLS(t *testing.T) {
	t.Parallel()
	of := map[string][]string{}
	eachFlag(model(t, new(commands)).Model.Node, func(command string, f *kong.Flag) { of[command] = append(of[command], f.Name) })
	callers := 0
	for command, flags := range of {
		if !slices.Contains(flags, "berth") && !slices.Contains(flags, "from") {
			continue
		}
		callers++
		for _, name := range []string{"ca", "cert", "cert-key"} {
			if !slices.Contains(flags, name) {
				t.Errorf("%s has no --%s", command, name)
			}
		}
	}
	if callers < 13 {
		t.Errorf("only %d commands call a Berth", callers)
	}
}

// What a server does that had taken the certificate is no fault of the certificate,
// nor is one that is not there.
func TestOtherFailuresNameNoFlag(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "harbour")
	cert, key := ca.issue(net.IPv4(127, 0, 0, 1))
	c := &serveCmd{TLSCert: cert, TLSKey: key, TLSClientCA: ca.file}
	config, err := c.tlsConfig()
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls == 1 {
			fmt.Fprint(w, "{}")
			return
		}
		panic(http.ErrAbortHandler)
	}))
	config.NextProtos = nil // one call at a time on HTTP/1.1
	web.TLS = config
	web.StartTLS()
	r := &RemoteFlags{URL: web.URL, TLSFlags: TLSFlags{CA: ca.file, Cert: cert, CertKey: key}}
	if _, err := r.call(t.Context(), "GET", "/", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.call(t.Context(), "GET", "/", nil); err == nil || strings.Contains(err.Error(), "--c") {
		t.Errorf("a call that was broken off: %v", err)
	}
	web.Close()
	if _, err := r.call(t.Context(), "GET", "/", nil); err == nil || strings.Contains(err.Error(), "--c") {
		t.Errorf("a server that is not there: %v", err)
	}
}

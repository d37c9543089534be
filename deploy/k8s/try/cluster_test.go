// Package try applies the chart and the manifests to an API server of Kubernetes: "make
// try-kubernetes" runs it.
//
// The server and its store are all there is. No controller makes pods of what was applied, and
// no kubelet runs one: so it shows what the API server accepts and how it understands it, and
// nothing of what happens then.
package try

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var programs = flag.String("programs", "", "directory of etcd, kube-apiserver, kubectl and helm, which try.sh makes")

// What the tests share: the configuration of clients, as a file and as a value, and a client.
var (
	kubeconfig string
	config     *rest.Config
	client     *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if *programs == "" {
		fmt.Fprintln(os.Stderr, "-programs is missing: run make try-kubernetes")
		return 2
	}
	dir, err := os.MkdirTemp("", "penstock-kubernetes-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	stop, err := start(dir)
	defer stop()
	if err == nil {
		err = definitions(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// start starts etcd and the API server, and waits until the server is ready. What it returns
// ends them, whether or not it came that far.
func start(dir string) (stop func(), err error) {
	var processes []*process
	stop = func() {
		for i := len(processes) - 1; i >= 0; i-- {
			processes[i].stop()
		}
	}
	store, server, err := freePorts()
	if err != nil {
		return stop, err
	}
	if err := credentials(dir); err != nil {
		return stop, err
	}
	url := "http://127.0.0.1:" + store
	for _, args := range [][]string{
		{"etcd", "--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", "http://127.0.0.1:0"},
		{
			"kube-apiserver", "--etcd-servers", url, "--bind-address", "127.0.0.1", "--secure-port", server,
			"--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none", "--service-cluster-ip-range", "10.96.0.0/16",
			"--cert-dir", filepath.Join(dir, "certificates"), "--token-auth-file", filepath.Join(dir, "tokens.csv"),
			"--anonymous-auth=false", "--authorization-mode", "RBAC",
			"--service-account-issuer", "https://127.0.0.1", "--service-account-key-file", filepath.Join(dir, "accounts.key"),
			"--service-account-signing-key-file", filepath.Join(dir, "accounts.key"),
		},
	} {
		p, err := startProcess(dir, args[0], args[1:]...)
		if err != nil {
			return stop, err
		}
		processes = append(processes, p)
	}
	return stop, connect(dir, "https://127.0.0.1:"+server, processes)
}

// freePorts are two ports that nothing listens on. Neither program takes a listener that is
// open, nor tells which port it was given.
func freePorts() (store, server string, err error) {
	var found [2]string
	for i := range found {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", err
		}
		defer l.Close() // not before the other has one, too
		found[i] = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	return found[0], found[1], nil
}

// credentials writes the token of the administrator, and the key that signs those of service
// accounts. The server makes its certificate itself.
func credentials(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "tokens.csv"), []byte(rand.Text()+",administrator,administrator,system:masters\n"), 0o600); err != nil {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return os.WriteFile(filepath.Join(dir, "accounts.key"), block, 0o600)
}

// connect writes the configuration of clients, and waits for the server.
func connect(dir, url string, processes []*process) error {
	tokens, err := os.ReadFile(filepath.Join(dir, "tokens.csv"))
	if err != nil {
		return err
	}
	token, _, _ := strings.Cut(string(tokens), ",")
	kubeconfig = filepath.Join(dir, "config")
	content := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: try, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: administrator, user: {token: %q}}]
contexts: [{name: try, context: {cluster: try, user: administrator}}]
current-context: try
`, url, filepath.Join(dir, "certificates", "apiserver.crt"), token)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		return err
	}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		for _, p := range processes {
			if p.ended() {
				return fmt.Errorf("%s has ended:\n%s", p.name, p.tail())
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the API server is not ready: %w\n%s", err, processes[len(processes)-1].tail())
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// ready makes the clients, and asks the server whether it is ready. Its certificate is there
// once it listens.
func ready() (err error) {
	if config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return err
	}
	config.QPS = -1 // no limit
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err
}

// A process is one of the two, with its log in a file.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
}

func startProcess(dir, name string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	p := &process{name: name, log: log, cmd: exec.Command(filepath.Join(*programs, name), args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // its log says why
	}()
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the process at once: what it stored is removed with it.
func (p *process) stop() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
	p.log.Close()
}

// tail is the end of the log.
func (p *process) tail() string {
	content, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// command runs a client of the cluster, and returns what it prints. Its remarks count only
// where it fails.
func command(stdin, name string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(*programs, name), args...)
	home := filepath.Dir(kubeconfig) // for what it caches
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	cmd.Stdin = strings.NewReader(stdin)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out.String(), said.String())
	}
	return out.String(), nil
}

// must is command for what is to succeed.
func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := command("", name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

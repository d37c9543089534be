// Package modelkey is the keys of model APIs that the settings of a worker name: whose jobs
// use them, and where their secrets are.
//
//	model.keys: NAME ─▶ Check, without the secrets ─▶ Open, with them ─▶ keys of a gate
//
// A secret is in a file, or in a variable. It is in no error.
package modelkey

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/endpoint"
)

// Prefix begins the variables with secrets of keys: see [Variable].
const Prefix = "PENSTOCK_MODEL_KEY_"

const (
	maxSecret = 16 << 10
	maxWeight = 1000
)

// APIs are the model APIs that there may be keys for.
var APIs = []string{"anthropic", "openai", "google"}

// A Key is one that the settings name.
type Key struct {
	API        string   `yaml:"api" doc:"model API that the key is for: anthropic, openai or google"`
	SecretFile string   `yaml:"secret_file,omitempty" doc:"file with the key; empty: the variable PENSTOCK_MODEL_KEY_NAME has it"`
	Weight     float64  `yaml:"weight,omitempty" doc:"its share of the sessions, in proportion to that of the API's other keys; 0 is 1"`
	Queues     []string `yaml:"queues,omitempty" doc:"queues whose jobs use the key, and no others that they are not named in; * is all queues; none: the queues that no key names"`

	Via     string            `yaml:"via,omitempty" doc:"what the calls go to: azure (Azure OpenAI), bedrock (Amazon), vertex (Google), subscription (an account of Claude or ChatGPT); empty: what speaks the API itself"`
	URL     string            `yaml:"url,omitempty" doc:"base URL of it; empty: that of the API or of the region"`
	Header  string            `yaml:"header,omitempty" doc:"header in which a gateway wants the key; Authorization: as a bearer; empty: that of the API"`
	Headers map[string]string `yaml:"headers,omitempty" doc:"further headers of each request, by name; a value that begins with @ is that of a file"`
	Models  map[string]string `yaml:"models,omitempty" doc:"what it calls models, by the names that agents use, which may end with *"`
	Region  string            `yaml:"region,omitempty" doc:"region of Bedrock, or location of Vertex"`
	Project string            `yaml:"project,omitempty" doc:"project of Vertex"`
	Version string            `yaml:"api_version,omitempty" doc:"api-version of Azure, for its paths with deployments; empty: the paths with v1"`
	Tokens  string            `yaml:"token_url,omitempty" doc:"where a subscription of ChatGPT renews its tokens; empty: at OpenAI"`
	CA      string            `yaml:"tls_ca,omitempty" doc:"authorities of its certificate, a PEM file; empty is the system's"`
	Cert    string            `yaml:"tls_client_cert,omitempty" doc:"certificate that it wants of its clients, a PEM file"`
	CertKey string            `yaml:"tls_client_key,omitempty" doc:"its key, a PEM file"`
}

// Keys are those of the settings, by name.
type Keys map[string]Key

// name is what a key may be called.
var name = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`) })

// Variable returns the variable with the secret of a key.
func Variable(key string) string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

// Check reports what is wrong with the settings. It reads no secret.
func (all Keys) Check() error {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if err := check(key, all[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func check(key string, k Key) error {
	switch {
	case !name().MatchString(key):
		return errors.New("a name has up to 40 lower-case letters, digits and hyphens between them")
	case key == "other" || slices.Contains(APIs, key):
		return errors.New("is the name of something else: budgets and metrics could not tell them apart")
	case !slices.Contains(APIs, k.API):
		return fmt.Errorf("api: %q is not anthropic, openai or google", k.API)
	case k.SecretFile != "" && !filepath.IsAbs(k.SecretFile):
		return fmt.Errorf("secret_file: %q is not an absolute path", k.SecretFile)
	case math.IsNaN(k.Weight) || k.Weight < 0 || k.Weight > maxWeight:
		return fmt.Errorf("weight: %v is not between 0 and %d", k.Weight, maxWeight)
	case slices.Contains(k.Queues, ""):
		return errors.New("queues: a name is empty")
	}
	return k.checkEndpoint()
}

// Names returns the names of an API's keys, in order.
func (all Keys) Names(api string) []string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if all[key].API == api {
			names = append(names, key)
		}
	}
	return names
}

// Open reads the secrets of an API's keys. Base is the URL of those that name none; empty is the
// provider's. Variables are those of [Prefix].
func (all Keys) Open(api, base string, variables map[string]string) ([]gate.Credential, error) {
	var found []gate.Credential
	for _, key := range all.Names(api) {
		k := all[key]
		if k.Via == "" && k.elsewhere() && k.URL == "" {
			k.URL = base
		}
		c, err := k.open(key, variables)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		found = append(found, c)
	}
	return found, nil
}

// logsIn reports whether the secret is a login, whose file changes.
func (k Key) logsIn() bool { return k.Via == endpoint.Subscription && k.API == "openai" }

func (k Key) secret(key string, variables map[string]string) (string, error) {
	if k.logsIn() {
		return "", nil // its endpoint reads it, again and again
	}
	if k.SecretFile == "" {
		secret := strings.TrimSpace(variables[Variable(key)])
		if secret == "" {
			return "", fmt.Errorf("secret_file: names no file, and the variable %s is not set", Variable(key))
		}
		return secret, nil
	}
	secret, err := read(k.SecretFile)
	switch {
	case err != nil:
		return "", fmt.Errorf("secret_file: %w", err)
	case k.Via != endpoint.Bedrock && k.Via != endpoint.Vertex && strings.ContainsAny(secret, " \t\r\n"):
		return "", fmt.Errorf("secret_file: %s has more in it than a key", k.SecretFile)
	}
	return secret, nil
}

// read reads a small file with a secret.
func read(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	secret := strings.TrimSpace(string(data))
	switch {
	case err != nil:
		return "", err
	case secret == "":
		return "", fmt.Errorf("%s is empty", file)
	case len(data) > maxSecret:
		return "", fmt.Errorf("%s has more in it than a key", file)
	}
	return secret, nil
}

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// EnvPrefix begins the name of every variable that penstock reads, except
// those that name a provider's key, which have names of their own.
const EnvPrefix = "PENSTOCK_"

// Config holds every setting. Defaults are in [Defaults] and nowhere else.
type Config struct {
	Data     string        `yaml:"data" env:"DATA" doc:"directory for the embedded broker, caches and workspaces"`
	Server   string        `yaml:"server" env:"SERVER" doc:"NATS URL of the pool, or of a cluster; empty uses the pool of the data directory"`
	Creds    string        `yaml:"creds" env:"CREDS" doc:"NATS credentials file for --server"`
	Prefix   string        `yaml:"prefix" env:"PREFIX" doc:"prefix of every subject"`
	Tenant   string        `yaml:"tenant" env:"TENANT" doc:"tenant whose jobs are seen and submitted"`
	Replicas int           `yaml:"replicas" env:"REPLICAS" doc:"replicas of every stream in a cluster"`
	Lease    time.Duration `yaml:"lease" env:"LEASE" doc:"how long a worker may be silent before its jobs go to another"`
	Log      LogConfig     `yaml:"log" envPrefix:"LOG_"`
	Worker   WorkerConfig  `yaml:"worker" envPrefix:"WORKER_"`
	Serve    ServeConfig   `yaml:"serve" envPrefix:"SERVE_"`
	Model    ModelConfig   `yaml:"model" envPrefix:"MODEL_"`

	// The providers' keys are taken out of the environment as they are read,
	// so that no child process can inherit them.
	AnthropicKey string `yaml:"-" env:"ANTHROPIC_API_KEY,unset" doc:"key of the Anthropic API; it stays in the worker"`
	OpenAIKey    string `yaml:"-" env:"OPENAI_API_KEY,unset" doc:"key of the OpenAI API; it stays in the worker"`
}

// LogConfig says what is logged, and how.
type LogConfig struct {
	Level  string `yaml:"level" env:"LEVEL" doc:"debug, info, warn or error"`
	Format string `yaml:"format" env:"FORMAT" doc:"text or json"`
}

// WorkerConfig is what a worker needs besides its connection.
type WorkerConfig struct {
	Name    string        `yaml:"name" env:"NAME" doc:"the worker's name; the host's name and process by default"`
	Slots   int           `yaml:"slots" env:"SLOTS" doc:"jobs at once; 0 means one per processor"`
	Queues  []string      `yaml:"queues" env:"QUEUES" doc:"queues to serve"`
	Backend string        `yaml:"backend" env:"BACKEND" doc:"jail for jobs that leave the choice to the worker"`
	Drain   time.Duration `yaml:"drain" env:"DRAIN" doc:"how long running jobs may go on after SIGTERM"`
	Admin   string        `yaml:"admin" env:"ADMIN" doc:"address of /metrics, /livez and /readyz; empty for none"`
	ROPaths []string      `yaml:"ro_paths" env:"RO_PATHS" doc:"host directories that every jail sees read-only"`
	Claude  string        `yaml:"claude" env:"CLAUDE" doc:"path of the claude program; empty looks in PATH"`
}

// ServeConfig is what the dispatcher needs.
type ServeConfig struct {
	Listen string `yaml:"listen" env:"LISTEN" doc:"address of the embedded broker"`
	Admin  string `yaml:"admin" env:"ADMIN" doc:"address of /metrics, /livez and /readyz; empty for none"`
	Slots  int    `yaml:"slots" env:"SLOTS" doc:"slots of a worker inside serve; 0 for none"`
}

// ModelConfig says where the gate sends the agents' requests.
type ModelConfig struct {
	AnthropicURL string `yaml:"anthropic_url" env:"ANTHROPIC_URL" doc:"base URL of the Anthropic API, or of a gateway"`
	OpenAIURL    string `yaml:"openai_url" env:"OPENAI_URL" doc:"base URL of the OpenAI API, or of a gateway"`
}

// Defaults returns the settings of somebody who set nothing.
func Defaults() Config {
	return Config{
		Data: defaultData(), Prefix: "penstock.v1", Tenant: "default", Replicas: 1, Lease: 10 * time.Second,
		Log:    LogConfig{Level: "warn", Format: "text"},
		Worker: WorkerConfig{Queues: []string{"default"}, Backend: "auto", Drain: 10 * time.Minute, Admin: "127.0.0.1:9091"},
		Serve:  ServeConfig{Listen: "127.0.0.1:4222", Admin: "127.0.0.1:9090"},
		Model:  ModelConfig{AnthropicURL: "https://api.anthropic.com"},
	}
}

func defaultData() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "penstock")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "/var/lib/penstock"
	}
	return filepath.Join(home, ".local", "state", "penstock")
}

// setting marks the flags that are settings: those that Load applies again.
const setting = "penstock_setting"

// Settings marks every flag of a set as bound to a field of a [Config].
func Settings(flags *pflag.FlagSet) *pflag.FlagSet {
	flags.VisitAll(func(f *pflag.Flag) { f.Annotations = map[string][]string{setting: {"true"}} })
	return flags
}

// Load fills c by the order of precedence. flags are those bound to c's
// fields; the ones that were given win. file is --config; empty means
// ./penstock.yaml, else the user's file, where they exist.
func (c *Config) Load(flags *pflag.FlagSet, file string) error {
	given := map[string][]string{}
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed || f.Annotations[setting] == nil {
			return
		}
		if many, ok := f.Value.(pflag.SliceValue); ok {
			given[f.Name] = many.GetSlice()
			return
		}
		given[f.Name] = []string{f.Value.String()}
	})
	*c = Defaults()
	if err := c.readFile(file); err != nil {
		return err
	}
	err := env.ParseWithOptions(c, env.Options{Prefix: EnvPrefix})
	if err == nil {
		err = errors.Join(takeKey(&c.AnthropicKey, "ANTHROPIC_API_KEY"), takeKey(&c.OpenAIKey, "OPENAI_API_KEY"))
	}
	if err != nil {
		return Usage("see penstock config view", "environment: %w", err)
	}
	for name, values := range given {
		if err := set(flags.Lookup(name), values); err != nil {
			return Usage("", "--%s: %w", name, err)
		}
	}
	return c.validate()
}

// takeKey reads a key by the name that everybody uses for it, without our
// prefix, where it was not given with it.
func takeKey(key *string, name string) error {
	if *key == "" {
		*key = os.Getenv(name)
	}
	return os.Unsetenv(name)
}

func set(f *pflag.Flag, values []string) error {
	if many, ok := f.Value.(pflag.SliceValue); ok {
		return many.Replace(values)
	}
	return f.Value.Set(values[0])
}

func (c *Config) readFile(file string) error {
	candidates := []string{file}
	if file == "" {
		candidates = []string{"penstock.yaml"}
		if dir, err := os.UserConfigDir(); err == nil {
			candidates = append(candidates, filepath.Join(dir, "penstock", "config.yaml"))
		}
	}
	for _, name := range candidates {
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) && file == "" {
			continue
		}
		if err != nil {
			return Usage("", "read settings: %w", err)
		}
		dec := yaml.NewDecoder(bytes.NewReader(data))
		dec.KnownFields(true)
		if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
			return Usage("penstock config view shows every setting", "%s: %w", name, err)
		}
		return nil
	}
	return nil
}

func (c *Config) validate() error {
	abs, err := filepath.Abs(c.Data)
	if err != nil {
		return Usage("", "data: %w", err)
	}
	c.Data = abs
	var level levelText
	switch {
	case c.Lease < 2*time.Second || c.Lease > 10*time.Minute:
		return Usage("", "lease: %v is not between 2s and 10m", c.Lease)
	case c.Worker.Slots < 0 || c.Worker.Slots > 4096:
		return Usage("", "worker.slots: %d is not between 0 and 4096", c.Worker.Slots)
	case c.Serve.Slots < 0 || c.Serve.Slots > 4096:
		return Usage("", "serve.slots: %d is not between 0 and 4096", c.Serve.Slots)
	case c.Replicas < 1 || c.Replicas > 5:
		return Usage("", "replicas: %d is not between 1 and 5", c.Replicas)
	case level.UnmarshalText([]byte(c.Log.Level)) != nil:
		return Usage("", "log.level: %q is not debug, info, warn or error", c.Log.Level)
	case c.Log.Format != "text" && c.Log.Format != "json":
		return Usage("", "log.format: %q is not text or json", c.Log.Format)
	}
	for _, p := range c.Worker.ROPaths {
		if !filepath.IsAbs(p) {
			return Usage("", "worker.ro_paths: %q is not an absolute path", p)
		}
	}
	return nil
}

// YAML writes the settings as a file that could have set them. The key is
// not a setting of files and is never written.
func (c Config) YAML(w io.Writer) error {
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(c); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return enc.Close()
}

// Plain returns the settings as maps with the keys of a settings file.
func (c Config) Plain() (map[string]any, error) {
	data, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	plain := map[string]any{}
	return plain, yaml.Unmarshal(data, &plain)
}

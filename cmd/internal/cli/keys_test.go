package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Keys of model APIs are read as docs/how-to/model-keys.md shows them; their secrets are written nowhere.
func TestModelKeys(t *testing.T) {
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "penstock.yaml"), filepath.Join(dir, "secret")
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(secret, "sk-of-the-file\n")
	load := func(keys string) (Config, error) {
		write(file, "model:\n  keys:\n    "+strings.ReplaceAll(keys, "SECRET", secret)+"\n")
		var c Config
		return c, c.Load(pflag.NewFlagSet("", pflag.ContinueOnError), file, map[string]string{"PENSTOCK_MODEL_KEY_TEAM_A": "sk-of-the-variable"})
	}
	c, err := load(`main: {api: anthropic, secret_file: SECRET, weight: 3}
    team-a: {api: anthropic, queues: [research]}
    away: {api: openai, secret_file: /nonexistent}`)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := c.Model.Keys.Open("anthropic", "", c.Model.Secrets)
	if err != nil || len(keys) != 2 || string(keys[0].Key) != "sk-of-the-file" || keys[0].Weight != 3 || string(keys[1].Key) != "sk-of-the-variable" || keys[1].Queues[0] != "research" {
		t.Errorf("got %+v, %v", keys, err)
	}
	var view strings.Builder
	if err := c.YAML(&view); err != nil || strings.Contains(view.String(), "sk-of") || !strings.Contains(view.String(), "team-a") {
		t.Errorf("the settings: %v\n%s", err, view.String())
	}
	if _, err := c.Model.Keys.Open("openai", "", nil); err == nil || !strings.HasPrefix(err.Error(), "away: secret_file") {
		t.Errorf("a file that is missing: %v", err)
	}
	for keys, want := range map[string]string{
		"openai: {api: openai}":                                                               "model.keys.openai: is the name of something else",
		"Main: {api: openai}":                                                                 "model.keys.Main: a name has up to 40",
		"main: {api: mistral}":                                                                `model.keys.main: api: "mistral" is not anthropic, openai or google`,
		"main: {api: openai, secret_file: secret}":                                            "secret_file",
		"main: {api: openai, weight: -1}":                                                     "weight: -1 is not between",
		`main: {api: openai, queues: [""]}`:                                                   "queues: a name is empty",
		"main: {api: openai, via: bedrock, region: x}":                                        "via: bedrock is for api anthropic, not openai",
		"main: {api: anthropic, via: bedrock}":                                                "region",
		"main: {api: anthropic, via: cloud}":                                                  "via",
		"main: {api: google, via: vertex, region: global}":                                    "project",
		"main: {api: google, via: subscription}":                                              "via: subscription is for api anthropic or openai",
		"main: {api: openai, via: subscription}":                                              "secret_file: via subscription needs it for openai",
		"main: {api: openai, token_url: 'https://x.test'}":                                    "token_url: is for api openai via subscription",
		"main: {api: openai, via: subscription, secret_file: /f, token_url: 'http://x.test'}": "token_url: upstream http://x.test: the key would travel unencrypted",
		"main: {api: openai, via: azure}":                                                     "url: via azure needs it",
		"main: {api: openai, api_version: x}":                                                 "api_version: is for via azure",
		"main: {api: openai, url: http://gateway.example}":                                    "unencrypted",
		`main: {api: openai, headers: {"a b": x}}`:                                            "headers",
		"main: {api: openai, headers: {X-A: \"@key\"}}":                                       "headers.X-A",
		"main: {api: openai, tls_client_cert: /c}":                                            "tls_client_key",
		"main: {api: openai, models: {a: \"\"}}":                                              "models.a",
		"main: {api: openai, secret: sk-in-the-file-x}":                                       "field secret not found",
	} {
		if _, err := load(keys); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-in") {
			t.Errorf("%s: %v", keys, err)
		}
	}
	for text, want := range map[string]string{"": "is empty", "two words": "more in it", strings.Repeat("x", 20<<10): "more in it"} {
		write(secret, text)
		if _, err := c.Model.Keys.Open("anthropic", "", c.Model.Secrets); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a file with %.20q: %v", text, err)
		}
	}
}

// Package pricing says what calls of language models cost, by the list prices of their
// providers and by those that an operator has set.
//
// The built-in table holds the prices that the providers had published by November 2026:
//
//   - Anthropic: platform.claude.com/docs/en/about-claude/pricing
//   - OpenAI: developers.openai.com/api/docs/pricing
//   - Google: ai.google.dev/gemini-api/docs/pricing
//
// The program fetches nothing: prices that changed since, contracts and gateways belong
// into the setting prices. A model that neither knows is priced as the dearest that its
// provider has in the table, so that a budget ends too early and not too late.
//
// The package holds values only.
package pricing

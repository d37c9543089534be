# An image for isolation container with the agents baked in. It has not been built by the
# tests, which have no registry to take its base from. The worker never
# fetches an image: build it on, or copy it to, each worker's host.
#
#   docker build --tag acme/agents:1 --file agents.Dockerfile .
#   penstock run --isolation container --image acme/agents:1 --agent claude "…"
#
# What an image needs: Linux for the worker's architecture, /bin/sh for setup and
# check commands, git, and the agent's program in a directory of the job's PATH
# (/usr/local/bin is one). It needs no user, no entry point and no key: the jail's
# first program, the user and the way to the model API come from the worker.
# docs/how-to/containers.md says how the same is done without a registry.
FROM node:24-bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
      bash ca-certificates git python3 procps ripgrep \
    && rm -rf /var/lib/apt/lists/*
RUN npm install --global --no-audit --no-fund \
      @anthropic-ai/claude-code @openai/codex @google/gemini-cli \
    && npm cache clean --force
# What the repository of the job needs to build and test goes here as well: the
# jail has no network to install it over.

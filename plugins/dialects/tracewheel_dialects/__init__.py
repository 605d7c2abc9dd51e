"""Dialects of the gateway besides Chat Completions: OpenAI's Responses, Anthropic's Messages, Google's Gemini."""

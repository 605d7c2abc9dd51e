"""A model as one GGUF file for llama.cpp."""

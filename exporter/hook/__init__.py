"""The file that training jobs copy to time their collectives."""

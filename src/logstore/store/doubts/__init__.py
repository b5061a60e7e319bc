"""What is in doubt in an old copy of a log dir: decide, and accept it on its user's word."""

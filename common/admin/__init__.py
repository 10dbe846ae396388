"""Every administrative verb as one function with typed input: the command line calls them now, a console later."""

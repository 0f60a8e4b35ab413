"""What is wrong with the GPU set-up of this process: facts from several sources, and checks of them."""

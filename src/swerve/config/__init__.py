"""The configuration: frozen models with the defaults, and nothing else. Free of torch.

Reading recipes and overrides is in `swerve.recipes`. The classes of tasks are defined beside their problems, in
`swerve.problems`.
"""

/** Default address of the control plane, where commands look for a gateway. */
export const DEFAULT_CONTROL = 'http://127.0.0.1:8081'

/** Returns a command for a person, with the address of the control plane unless commands look there by themselves. */
export const commandAt = (command: string, control: string | undefined): string =>
  control === undefined || control.replace(/\/+$/, '') === DEFAULT_CONTROL
    ? command
    : `${command} --control ${control}`

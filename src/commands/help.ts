import { Misuse, runCommand, unknownCommand } from './shared/arguments.ts'
import { type Commands, groups, type Run } from './listed.ts'

export function usageOf(commands: Commands): string {
  const width = Math.max(...Object.keys(commands).map((name) => name.length))
  return [
    'breakwater: an MCP gateway with a built-in chaos and resilience mesh',
    '',
    ...Object.entries(groups).flatMap(([group, title]) => [
      `${title}:`,
      ...Object.entries(commands)
        .filter(([, command]) => command.group === group)
        .map(([name, { about }]) => `  breakwater ${name.padEnd(width)}  ${about}`),
      '',
    ]),
    'Help on a command: `breakwater help COMMAND`, or the command with --help.',
  ].join('\n')
}

export function helpOn(commands: Commands): Run {
  const usage = usageOf(commands)
  return (args, out, env) =>
    runCommand(args, { usage, options: {} }, out, async (_, [name, ...more]) => {
      if (name === undefined || name === 'help') {
        out.stdout(usage)
        return 0
      }
      const command = Object.hasOwn(commands, name) ? commands[name] : undefined
      if (command === undefined) throw new Misuse(unknownCommand(name, Object.keys(commands)))
      const run = await command.load()
      return run([...more, '--help'], out, env)
    })
}

import type { Commands, Run } from '../../src/commands/listed.ts'
import { Terminal } from '../../src/commands/shared/terminal.ts'
import { blocks, type Pages, table } from './markdown.ts'

/** `docs/commands.md`: what each command says of itself, in the order in which `breakwater help` lists them. */
export async function commandPages(commands: Commands): Promise<Pages> {
  const entries = Object.entries(commands)
  const sections: string[] = []
  for (const [name, { load }] of entries)
    sections.push(`## ${name}`, `\`\`\`text\n${await helpOf(await load())}\n\`\`\``)
  return {
    'commands.md': blocks(
      '# Commands',
      'What each command prints with `--help`. `npm run docs` writes this page from the commands themselves.',
      'In a checkout the program is `npx breakwater`. What a command was asked for goes to standard output, all else to standard error, and its exit code is 0 when it did what it was asked for, 1 when it could not, and 2 when the arguments make no sense; those for which it means more say so. Commands that speak to a running gateway find it on this machine, with its token; `--control` and `--token` name another one.',
      table(
        ['Command', 'What it does'],
        entries.map(([name, { about }]) => [`[\`${name}\`](#${name})`, about]),
      ),
      ...sections,
    ),
  }
}

async function helpOf(run: Run): Promise<string> {
  let text = ''
  const screen = { write: (more: string) => (text += more) }
  await run(['--help'], new Terminal(screen, screen, {}), {})
  return text.trimEnd()
}

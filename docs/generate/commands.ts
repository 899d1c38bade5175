import type { Commands, Run } from '../../src/commands/listed.ts'
import { Terminal } from '../../src/commands/shared/terminal.ts'
import { blocks, type Pages, table } from './markdown.ts'

/** Returns `docs/commands.md`: the help of each command, in the order of `breakwater help`. */
export async function commandPages(commands: Commands): Promise<Pages> {
  const entries = Object.entries(commands)
  const sections: string[] = []
  for (const [name, { load }] of entries)
    sections.push(`## ${name}`, `\`\`\`text\n${await helpOf(await load())}\n\`\`\``)
  return {
    'commands.md': blocks(
      '# Commands',
      'The `--help` of each command. `npm run docs` writes this page from the commands themselves.',
      'In a checkout, the program is `npx breakwater`. A command writes its result to standard output, and everything else to standard error. Its exit code is 0 on success, 1 on failure, and 2 for wrong arguments; a command with further meanings says so. Commands for a running gateway find the gateway on this machine, with its token; `--control` and `--token` name another gateway.',
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

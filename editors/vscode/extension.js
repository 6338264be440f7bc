/* SPDX-License-Identifier: Apache-2.0 */
/* Starts `zplan lsp` for .dz files. */
const vscode = require('vscode');
const { LanguageClient } = require('vscode-languageclient/node');

let client;

async function activate() {
  const command = vscode.workspace.getConfiguration('zplan').get('path') || 'zplan';
  client = new LanguageClient('zplan', 'zplan', { command, args: ['lsp'] }, {
    documentSelector: [{ language: 'dz' }],
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher('**/*.dz') },
  });
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(`\`${command} lsp\` did not start: ${error.message}. The setting zplan.path names the command.`);
  }
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };

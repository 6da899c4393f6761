/* SPDX-License-Identifier: MIT
 *
 * A port of the loopback that is free now.
 */
#ifndef EO_TESTS_FREE_PORT_H
#define EO_TESTS_FREE_PORT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void choose_free_port(char port[16])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0)
        exit(1);
    snprintf(port, 16, "%u", ntohs(address.sin_port));
    close(fd);
}

#endif
